"""WCAG 2.1 AA, from the tokens of the sheet itself: every text on every ground it stands on."""

from __future__ import annotations

import re

import pytest
from django.conf import settings

SHEET = (settings.BASE_DIR / "static/css/console.css").read_text(encoding="utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{3,6});", part))
    for part in re.findall(r":root \{(.*?)\}", SHEET, re.DOTALL)
)
TONES = ("quiet", "wait", "live", "doubt", "good", "bad", "back", "undone")
PAIRS = [
    *(
        (text, ground)
        for text in ("ink", "soft", "link")
        for ground in ("paper", "surface", "sunken")
    ),
    *((tone, f"{tone}-bg") for tone in TONES),
    *((f"{tone}-bg", tone) for tone in TONES),
    *(("ink", f"{tone}-bg") for tone in TONES),
    *(("soft", f"{tone}-bg") for tone in TONES),
    ("on-accent", "accent"),
    ("on-accent", "accent-hover"),
    ("danger", "surface"),
    ("danger", "bad-bg"),
    ("bad", "surface"),
    ("bad", "sunken"),
]


def luminance(colour: str) -> float:
    """Relative luminance of #rgb or #rrggbb (WCAG 2.1)."""
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_stands_out_from_its_ground(scheme, text, ground):
    colours = LIGHT if scheme == "light" else LIGHT | DARK
    bright, dim = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
    assert (bright + 0.05) / (dim + 0.05) >= 4.5
