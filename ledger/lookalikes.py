"""Text that looks the same to a person (Unicode UTS #39, section 4, skeleton).

The table comes from the confusable-homoglyphs package. It lists pairs without their
direction, so each star of lookalikes is given one member as its name here; two texts have
equal skeletons exactly when UTS #39 says so. Pure: no Django.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

from confusable_homoglyphs import confusables

# UTS #39 drops characters with the property Default_Ignorable_Code_Point: nobody sees them.
# Format characters (Cf) are the ones of them that ordinary text can carry.
_IGNORED = frozenset({"Cf"})
_IGNORED_CHARACTERS = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0))
) | frozenset(map(chr, [*range(0x180B, 0x1810), *range(0xFE00, 0xFE10)]))


@cache
def _names() -> Mapping[str, str]:
    """Every confusable character → the text that stands for all that look like it."""
    around: dict[str, set[str]] = defaultdict(set)
    for text, others in confusables.confusables_data.items():
        around[_bare(text)].update(_bare(other["c"]) for other in others)

    def rank(text: str) -> tuple[bool, int, str]:
        # The centre of a star is a sequence, or the member with the most neighbours.
        return len(text) > 1, len(around[text]), text

    stars = {text: max({text, *others}, key=rank) for text, others in around.items()}
    # A name of several characters may contain one that has a name of its own.
    return {
        text: "".join(stars.get(c, c) for c in unicodedata.normalize("NFD", name))
        for text, name in stars.items()
        if len(text) == 1
    }


def _bare(text: str) -> str:
    # The package's table keeps the marks that make right-to-left examples readable.
    return text.strip("\u200e") or text


# What is alike for so long is alike: a person is asked. An index of Postgres holds no more.
MAX_CHARS = 500


def skeleton(text: str) -> str:
    """The text under which everything that looks like `text` is found; for comparing only."""
    names = _names()
    seen = (
        character
        for character in unicodedata.normalize("NFD", text)
        if unicodedata.category(character) not in _IGNORED and character not in _IGNORED_CHARACTERS
    )
    return unicodedata.normalize("NFD", "".join(names.get(c, c) for c in seen))[:MAX_CHARS]
