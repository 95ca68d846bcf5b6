"""A form that was refused: why, in a person's words, and what they had typed into it.

Services refuse in the words of the API, where a field has its name; on a page it has a label.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template
from django.http import HttpRequest
from django.template.context import Context

from ledger.errors import InvalidArgs, InvalidJson, SagaError

register = template.Library()

KEPT = "refused"
# What the forms call the fields of the API.
_LABELS = {
    "ends_at": "To",
    "finding": "What did you find",
    "reason": "Reason",
    "scope": "Freeze",
    "starts_at": "From",
    "to": "Who",
    "value": "Which",
}
_NOT_TYPED = {"csrfmiddlewaretoken", "next", "form", "about", "password"}


@register.filter
def refusal_title(refusal: SagaError) -> str:
    """What is wrong, of a form: its title speaks of fields and arguments."""
    if isinstance(refusal, InvalidArgs | InvalidJson):
        return "Not done: something is missing or cannot be used"
    return refusal.title


@register.filter
def refusal_words(refusal: SagaError) -> str:
    """What to change, with the labels of the fields."""
    words = refusal.detail
    if isinstance(refusal, InvalidArgs):
        for field, label in _LABELS.items():
            words = words.replace(f"`{field}`", f"“{label}”")
    return words


def told(refusal: SagaError) -> str:
    """Both in one line."""
    words = refusal_words(refusal)
    if isinstance(refusal, InvalidArgs | InvalidJson):
        return words
    return f"{refusal.title}. {words}"


def keep_typed(request: HttpRequest, refusal: SagaError) -> str:
    """Keep what was typed until its form is shown again; the form's id, or '' when it has none."""
    form = request.POST.get("form", "")
    if form:
        fields = {name: text for name, text in request.POST.items() if name not in _NOT_TYPED}
        request.session[KEPT] = {"form": form, "fields": fields, "why": told(refusal)}
    return form


@register.simple_tag(takes_context=True)
def typed_into(context: Context, form: str) -> Mapping[str, Any]:
    """`why` and `fields` of a form that has just been refused; once, and of no other form."""
    session = context["request"].session
    if session.get(KEPT, {}).get("form") != form:
        return {}
    found: Mapping[str, Any] = session.pop(KEPT)
    return found
