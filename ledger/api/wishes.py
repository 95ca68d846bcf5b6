"""The kinds of query parameters."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from ledger.queries.paging import MAX_LIMIT
from ledger.states import SagaState


def _storable(text: str) -> str:
    # Postgres has no text with a NUL in it, so nothing can be found by one.
    if "\x00" in text:
        raise ValueError("NUL is not accepted")
    return text


Name = Annotated[str, Field(max_length=200), AfterValidator(_storable)]
Cursor = Annotated[str, Field(max_length=200)]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]
# An empty one is none, as an empty cursor of every other list is.
Seq = Annotated[int, BeforeValidator(lambda given: given or 0), Field(ge=0, le=2**62)]
SagaStateWish = SagaState | Literal[""]
