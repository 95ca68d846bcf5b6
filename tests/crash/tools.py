"""The tools of the crash rows: the same four effects at each kind of target.

`dedupes`: the target dedupes on our key, and cannot be asked. `probed`: it dedupes nothing, and
can be asked. `blind`: neither, so only a person can know.
"""

from __future__ import annotations

KINDS = ("dedupes", "probed", "blind")

_HEAD = """
[tools."{kind}.{name}"]
version = "1"
tier = "{tier}"
blast_radius = "{radius}"
timeout_s = 1
retries = 3
settle_s = {settle}
{more}
[tools."{kind}.{name}".args]
type = "object"
required = ["name"]
properties.name.type = "string"
"""
_ACTION = """
[tools."{kind}.{name}".{verb}]
method = "POST"
url = "TARGET/{at}/{action}"
json = {{ key = "{{idempotency_key}}", name = "{{args.name}}" }}
"""
_PROBE = """
[tools."{kind}.{name}".{verb}]
method = "GET"
url = "TARGET/{at}/{action}?key={{idempotency_key}}"
match = "items[?key == {{idempotency_key}}] | [0]"
"""


def _tool(
    kind: str, name: str, tier: str, radius: str, *actions: tuple[str, str], more: str = ""
) -> str:
    at = "dedupes" if kind == "dedupes" else "plain"
    if kind == "dedupes":
        more += "\ndownstream_idempotent = true"
    text = _HEAD.format(kind=kind, name=name, tier=tier, radius=radius, more=more, settle=1.5)
    for verb, action in actions:
        text += _ACTION.format(kind=kind, name=name, verb=verb, action=action, at=at)
        if kind == "probed":
            probe = "probe" if verb == "execute" else f"{verb}.probe"
            text += _PROBE.format(kind=kind, name=name, verb=probe, action=action, at=at)
    return text


def tools_file(url: str) -> str:
    """The whole file, for a target at this address."""
    text = ""
    for kind in KINDS:
        make, undo = ("execute", "make"), ("compensate", "undo")
        text += _tool(kind, "make", "compensatable", "low", make, undo)
        text += _tool(
            kind, "mail", "non_compensatable", "low", ("execute", "mail"), ("correct", "sorry")
        )
        text += _tool(kind, "pay", "pivot", "low", ("execute", "pay"))
        text += _tool(kind, "refund", "pivot", "high", ("execute", "refund"))
        text += _tool(
            kind,
            "own",
            "compensatable",
            "low",
            ("execute", "own"),
            ("compensate", "disown"),
            more='effect_key = "own:{args.name}"\nresource = "own:{args.name}"',
        )
    return text.replace("TARGET", url)
