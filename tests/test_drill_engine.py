"""A drill really executes and really undoes, in its sandbox and nowhere else."""

from __future__ import annotations

from tests.drillcast import FAILED, WORKED, came, yard

__all__ = ["yard"]


def test_a_drill_executes_finds_undoes_and_finds_it_gone(yard):
    found = yard.drill()
    assert came(found) == [
        ("execute", "done"),
        ("found", "found"),
        ("seen", "found"),
        ("undo", "done"),
        ("undone", "gone"),
        ("unseen", "gone"),
    ]
    assert (found.state, found.version, found.sandbox) == (WORKED, "1", yard.sandbox)
    assert f"{found.id.hex[-12:]}@example.com" not in yard.customers()


def test_an_undo_that_does_not_work_is_told_with_what_is_left(yard):
    yard.write(("customers/{result.id}", "customers/not-{result.id}"))
    found = yard.drill("crm.blind")
    assert came(found) == [("execute", "done"), ("undo", "failed")]
    assert found.state == FAILED
    assert found.said == "Compensate failed. What execute did is left in the sandbox."
    assert f"{found.id.hex[-12:]}@example.com" in yard.customers()
