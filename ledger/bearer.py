"""Who is calling: an agent's program or a person. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Bearer:
    """The owner of a token or of a session: exactly one of agent and user is set."""

    agent_id: UUID | None = None
    agent_name: str = ""
    user_id: int | None = None
    username: str = ""
    tools: tuple[str, ...] = ()

    @property
    def is_agent(self) -> bool:
        return self.agent_id is not None

    @property
    def actor(self) -> str:
        """The line under which the ledger records what this caller did."""
        return f"agent:{self.agent_name}" if self.is_agent else f"person:{self.username}"

    def may_use(self, tool: str) -> bool:
        """An agent's token names the tools it may propose; no pattern means every tool."""
        return not self.tools or any(fnmatchcase(tool, pattern) for pattern in self.tools)
