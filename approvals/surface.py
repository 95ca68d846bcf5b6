"""Where an answer comes from: the surface, the address, and when the password was last asked."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from django.conf import settings

SurfaceName = Literal["page", "api", "page-bulk", "api-bulk", "console"]
NAMES: tuple[str, ...] = get_args(SurfaceName)


@dataclass(frozen=True, slots=True)
class Surface:
    """`checked_at`: when this session last gave its password, by the database's clock."""

    name: SurfaceName
    address: str = ""
    checked_at: datetime | None = None

    @property
    def is_page(self) -> bool:
        return self.name.startswith("page")

    @property
    def is_api(self) -> bool:
        return self.name.startswith("api")


# Code in this process that has seen to the person itself: a shell, a test. No view may use it.
CONSOLE = Surface("console")


def address_of(meta: Mapping[str, Any]) -> str:
    """The caller's address. `X-Forwarded-For` counts only as far as our own proxies wrote it.

    `SAGA_PROXIES` of them stand in front: the one that many places from the right was added
    by the outermost of them; everything further left the caller may have made up.
    """
    peer = str(meta.get("REMOTE_ADDR") or "")
    proxies: int = settings.SAGA_PROXIES
    told = [part.strip() for part in str(meta.get("HTTP_X_FORWARDED_FOR", "")).split(",")]
    if proxies and len(told) >= proxies:
        with suppress(ValueError):
            return str(ipaddress.ip_address(told[-proxies]))
    return peer[:64]
