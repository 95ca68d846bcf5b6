"""The REST door: parse, one service, one answer. docs/agents.md is its manual."""
