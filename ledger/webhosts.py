"""Where a saga's webhook may lead. An agent names the address, so an operator names the hosts.

A webhook is a call into the world that no gate has seen: nothing is allowed unless
`SAGA_WEBHOOK_HOSTS` says so. Its entries are host names (`hooks.example.org`,
`*.example.org`) and addresses or networks (`10.1.0.0/16`). A name may lead to public
addresses; to others (loopback, private, link-local) only where a network of the list has them.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class NotAllowed(Exception):
    """This address is not one that a webhook may be sent to; the text says why."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """An allow-list. `networks` are for literal addresses, and for what names lead to."""

    names: frozenset[str] = frozenset()
    networks: Sequence[Network] = field(default_factory=tuple)

    def allows_name(self, host: str) -> bool:
        """Whether this host may be named at all; what it leads to is asked when it is called."""
        host = host.rstrip(".").casefold()
        literal = _literal(host)
        if literal is not None:
            return self.allows_private(literal)
        return host in self.names or any(
            host.endswith(name[1:]) for name in self.names if name.startswith("*.")
        )

    def allows_private(self, address: Address) -> bool:
        """Whether a network of the list has this address."""
        return any(address in network for network in self.networks)


def hosts(entries: Sequence[str]) -> Hosts:
    """Read the list. Raises ValueError with the entry that is neither a name nor a network."""
    names, networks = set(), []
    for entry in entries:
        try:
            networks.append(ipaddress.ip_network(entry.strip("[]"), strict=True))
        except ValueError:
            if not _is_name(entry.removeprefix("*.")):
                raise ValueError(
                    f"{entry!r} is no host name, address or network; write hooks.example.org, "
                    "*.example.org or 10.1.0.0/16, without scheme and port"
                ) from None
            names.add(entry.rstrip(".").casefold())
    return Hosts(frozenset(names), tuple(networks))


def _is_name(text: str) -> bool:
    labels = text.rstrip(".").split(".")
    return (
        all(
            label.isascii() and label.replace("-", "").replace("_", "").isalnum()
            for label in labels
        )
        and not labels[-1].isdigit()
    )


def _literal(host: str) -> Address | None:
    try:
        found = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
    return _unwrapped(found)


def _unwrapped(address: Address) -> Address:
    """`::ffff:127.0.0.1` and 6to4 are the IPv4 address that they lead to."""
    if isinstance(address, ipaddress.IPv6Address):
        return address.ipv4_mapped or address.sixtofour or address
    return address


def check(url: str, allowed: Hosts) -> str:
    """The host of `url`, when a webhook may name it. Raises NotAllowed; asks no name server."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NotAllowed("this is not an http or https address")
    if parts.username is not None or parts.password is not None:
        raise NotAllowed("an address with a user name or password is not taken")
    if not allowed.allows_name(parts.hostname):
        raise NotAllowed(
            f"webhooks to {parts.hostname} are not allowed here: whoever operates this console "
            "names the hosts in SAGA_WEBHOOK_HOSTS. Leave `webhook` out, or ask them"
        )
    return parts.hostname


def resolve(url: str, allowed: Hosts) -> str:
    """The one address to connect to, looked up and checked now. Raises NotAllowed, OSError.

    The caller connects to exactly it: asked a second time, a name server could say another.
    """
    host = check(url, allowed)
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        literal = _literal(address.partition("%")[0])
        if literal is None or not (_is_public(literal) or allowed.allows_private(literal)):
            raise NotAllowed(f"{host} leads to {address}, which is no public address")
    return addresses[0]


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast
