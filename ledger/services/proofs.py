"""A token that is looked up in the transaction that it authorises.

Whose token it is hardly ever changes. So an operation may begin with whoever it was of when this
process last asked, and look it up with the first statements that it sends anyway, behind the saga's
lock: that spares a trip, and what was revoked before the lock was had is refused. Nothing is
written, and nothing is told but 401, before the token has been looked up:

    with access.proof(request) as proof:
        answer = propose(..., bearer=proof.bearer, proof=proof)
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from ledger import storage
from ledger.bearer import Bearer
from ledger.errors import Unauthorized
from ledger.services import tokens
from ledger.statements import Statement

# Tokens that this process has seen, by their digest. A presumption, never an answer.
_seen: dict[str, Bearer] = {}
_MOST_SEEN = 10_000


class Proof:
    """Whose token the one of a request is: `bearer`, presumed at first. Of use in its `with`."""

    def __init__(self, raw: str) -> None:
        """Raises Unauthorized for one that this process has not seen, and that is nobody's."""
        self._raw = raw
        self._digest = tokens.digest(raw)
        self._has_asked = False
        presumed = _seen.get(self._digest)
        self.bearer = self._learned(storage.rows(*self.statement)) if presumed is None else presumed
        self._presumed = self.bearer

    @property
    def statement(self) -> Statement:
        """To be sent behind the first lock; `heed` its rows before anything else."""
        return tokens.finding(self._raw)

    def heed(self, rows: Sequence[Any]) -> None:
        """Raises Unauthorized when the token is nobody's, or not as presumed (`is_corrected`)."""
        self.bearer = self._learned(rows)
        if self.bearer != self._presumed:
            raise Unauthorized("The token is good for something else since.")

    def ask(self) -> None:
        """Look the token up, if that has not been done. Raises Unauthorized when it is nobody's."""
        if not self._has_asked:
            self.bearer = self._learned(storage.rows(*self.statement))

    def is_corrected(self) -> bool:
        """Whether the bearer was another than presumed: then all is to be done anew for this one,
        who is presumed from now on and looked up behind the next lock.

        Raises Unauthorized when the token is nobody's.
        """
        self.ask()
        was_wrong = self.bearer != self._presumed
        if was_wrong:
            self._presumed, self._has_asked = self.bearer, False
        return was_wrong

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Whatever it ends with, who may not ask is told that and nothing else; but that the ledger
        # is away, which the look would only find out once more.
        if error is None or (isinstance(error, Exception) and not storage.is_away(error)):
            self.ask()

    def _learned(self, rows: Sequence[Any]) -> Bearer:
        self._has_asked = True
        try:
            found = tokens.found(rows)
        except Unauthorized:
            _seen.pop(self._digest, None)
            raise
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        _seen[self._digest] = found
        return found
