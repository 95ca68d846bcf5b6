"""The guards of the promises, each with what is left without it and the test that fails then."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard: where it stands, what is left when it is taken away, and the test that fails.

    `test` is a node id of pytest, or begins with `row:` and names crash rows.
    """

    name: str
    path: str
    text: str
    without: str
    test: str

    @property
    def command(self) -> list[str]:
        if self.test.startswith("row:"):
            return ["-m", "tests.crash", "--lanes", "1", self.test.removeprefix("row:")]
        return ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", self.test]


GUARDS = [
    Guard(
        "Fence: an answer whose token is no longer current changes no state",
        "ledger/services/recording.py",
        'if attempt.state != "started" or attempt.token != assignment.token:',
        "if False:",
        "tests/test_proof_crash.py::"
        "test_a_worker_that_wakes_into_the_next_attempt_cannot_speak_for_it",
    ),
    Guard(
        "Number: an outcome that nothing was read for sees what was told since its claim",
        "ledger/walls_sql.py",
        "IF NEW.seq NOT IN (0, head + 1) THEN",
        "IF false THEN",
        "tests/test_engine_unread.py::test_a_step_that_was_proposed_meanwhile_is_started",
    ),
    Guard(
        "Token: who may propose is looked up behind the lock, before anything is written",
        "ledger/services/proposing.py",
        "        proof.heed(owned[0])\n",
        "        pass\n",
        "tests/test_api_proofs.py::"
        "test_who_was_known_and_may_ask_no_more_is_told_that_and_nothing_else",
    ),
    Guard(
        "Intent: one without an outcome is a doubt, and never run again blindly",
        "ledger/services/sweeping.py",
        "plan(unit, saga, step, direction, tool=tool, round_no=attempt.round)",
        # A claim too would see the doubt, and look.
        'step.error = None; unit.move(step, StepState.QUEUED, "step.queued"); '
        'unit.send(step, "run", direction, round_no=1)',
        "row:P12 · SIGKILL at P12 · forward · probed",
    ),
    Guard(
        "Intent: claim and intent are committed before the call",
        "ledger/shift.py",
        "        assignments = self._claim(room)\n",
        "        from django.db import transaction\n"
        "        with transaction.atomic():\n"
        "            assignments = self._claim(room)\n"
        "            for early in assignments:\n"
        "                early.tool.run(early.call)\n"
        "            time.sleep(0.1)\n",
        "row:P11 · SIGKILL, effect there · forward · probed",
    ),
    Guard(
        "Effect: a second step with a claimed effect gets the first one's answer",
        "ledger/services/inserting.py",
        "    if not prepared.claim:\n        return True\n",
        "    if prepared is not None:\n        return True\n",
        "tests/test_engine_forward.py::"
        "test_another_saga_that_wants_the_same_effect_gets_the_first_answer",
    ),
    Guard(
        "Together: two of one moment whose effects look alike see each other",
        "ledger/services/together.py",
        "        elif prepared.skeleton not in claimed:\n",
        "        else:\n",
        "tests/test_together.py::test_two_that_want_what_looks_like_one_effect_see_each_other",
    ),
    Guard(
        "Together: whose token it is is looked up for each of them",
        "ledger/services/together.py",
        "            proof.heed(rows.pop(0))\n",
        "            rows.pop(0)\n",
        "tests/test_together.py::test_a_token_that_was_revoked_meanwhile_writes_nothing",
    ),
    Guard(
        "Effect: a twin without an effect key waits for a person",
        "ledger/services/beginning.py",
        'why.append(f"It looks like a duplicate of step {duplicate.step_id!r} '
        '({duplicate.state}).")',
        "pass",
        "tests/test_engine_forward.py::test_a_twin_without_an_effect_key_waits_for_a_person",
    ),
    Guard(
        'Settle time: an early "not applied" counts for nothing',
        "ledger/services/looking.py",
        "    return _Negatives(before + counts, max(found.now_s or 0.0, 0.0))",
        "    return _Negatives(before + 1, 0.0)",
        "row:P17 · effect after the probe · forward · probed",
    ),
    Guard(
        'Double negative: one "not applied" is not enough',
        "ledger/services/looking.py",
        "NEGATIVES = 2",
        "NEGATIVES = 1",
        "tests/test_operating_doubt.py::test_negatives_are_spaced_apart",
    ),
    Guard(
        "Approval: a yes is checked again at the claim",
        "ledger/services/claiming.py",
        "why = gate().recheck(held(saga, step, direction))",
        'why = ""',
        "tests/test_approvals_recheck.py::test_an_approver_who_left_the_group_counts_no_more",
    ),
    Guard(
        "Doubt: a step that is sent again to find out is not one that never started",
        "ledger/services/backward.py",
        "s.state in STEP_NOT_STARTED and not has_open_doubt(s)",
        "s.state in STEP_NOT_STARTED",
        "row:P18 · abort, the call in flight: late · abort · dedupes",
    ),
    Guard(
        "Doubt: a refusal of the second attempt says nothing of the first",
        "ledger/services/recording.py",
        "isinstance(outcome, Failed) and has_open_doubt(step)",
        "False",
        "row:P11 · reset after it, then refused · forward · dedupes",
    ),
    Guard(
        "Undo: nothing is started beside an undo that is out",
        "ledger/services/looking.py",
        "    if step.state != StepState.COMPENSATING:\n        return False\n",
        "    if step.state != StepState.COMPENSATING:\n        return False\n    return True\n",
        "tests/test_engine_sent_again.py::"
        "test_late_evidence_starts_no_undo_beside_the_one_that_is_out",
    ),
    Guard(
        "Fork: a child leaves its parent's connections alone",
        "saga_console/apps.py",
        "        forking.watch()\n",
        "",
        "tests/test_cases_tls.py::test_a_forked_horse_never_uses_the_tls_socket_of_its_parent",
    ),
    Guard(
        "Lease: a worker that was late starts nothing",
        "ledger/shift.py",
        "if time.monotonic() > start_by:",
        "if False:",
        "row:P16 · SIGSTOP before the call · forward · probed",
    ),
    Guard(
        "Order: strictly the reverse of recorded execution",
        "ledger/services/backward.py",
        "key=lambda step: step.executed_seq or 0, reverse=True",
        "key=lambda step: step.executed_seq or 0",
        "tests/test_engine_backward.py::"
        "test_a_failed_step_undoes_the_ones_before_it_in_reverse_order",
    ),
    Guard(
        "Turn: what is in flight is resolved before anything is undone",
        "ledger/services/backward.py",
        "    if any(may_have_happened(step) and not step.residue for step in steps):\n"
        "        return\n",
        "",
        "tests/test_engine_doubt.py::test_an_abort_waits_for_the_step_in_flight_and_then_undoes_it",
    ),
    Guard(
        "COMMIT: one whose answer was lost is read back by its key",
        "ledger/services/proposing.py",
        "        if connection.in_atomic_block or not storage.may_be_done(error):\n"
        "            raise\n",
        "        raise\n",
        "tests/test_engine_lost_commit.py::test_a_proposal_whose_commit_was_lost_exists_once",
    ),
    Guard(
        "Locks: Postgres ends a transaction that its client has forgotten",
        "ledger/pipeline.py",
        "self._pg.pipeline_sync()",
        "self._pg.pipeline_sync(); self._pg.send_flush_request()",
        "row:P16 · SIGSTOP in the writing · compensate · probed",
    ),
    Guard(
        "Heartbeat: a lease is renewed for as long as its worker lives",
        "ledger/services/shifts.py",
        "    if held:\n",
        "    if False:\n",
        "tests/test_cases_leases.py::"
        "test_a_call_longer_than_its_lease_is_never_claimed_again_while_its_worker_lives",
    ),
    Guard(
        "Poison: a message that no claim can take is put off, for longer each time",
        "ledger/shift.py",
        "shifts.set_aside(storage.said(error))",
        "pass",
        "tests/test_cases_queue.py::"
        "test_a_poisoned_message_at_the_head_holds_nobody_up_and_is_tried_ever_less_often",
    ),
    Guard(
        "Sweep: one row that cannot be swept stops no other",
        "ledger/storage.py",
        "        if is_lost(error):\n            raise\n        logger.exception(",
        "        if True:\n            raise\n        logger.exception(",
        "tests/test_cases_queue.py::test_one_attempt_that_cannot_be_expired_stops_no_other",
    ),
    Guard(
        "Evidence: the key of what a late answer proves is spent",
        "ledger/services/testimony.py",
        'spend_key(step, direction, late.result, how="late answer")',
        "pass",
        "tests/test_operating_late.py",
    ),
    Guard(
        "TLS: who listens asks for the certificate, as every other connection does",
        "ledger/listening.py",
        "if name in _LIBPQ}",
        'if name in {"dbname", "user", "host", "port"}}',
        "tests/test_cases_tls.py::"
        "test_a_listener_does_not_talk_to_a_server_that_nobody_vouches_for",
    ),
    Guard(
        "One call: of one step and direction one call at a time leaves, whatever wants it",
        "ledger/services/claiming.py",
        'if message.kind == "run" and _is_out(message, ready):',
        "if False:",
        "tests/test_engine_one_at_a_time.py::"
        "test_a_second_message_calls_nothing_while_a_call_is_out",
    ),
    Guard(
        "One answer: each is weighed by the rows that the one before it has written",
        "ledger/services/recording.py",
        "        if assignment.saga in sagas:\n",
        "        if False:\n",
        "tests/test_engine_one_at_a_time.py::test_two_looks_that_come_back_together_send_one_undo",
    ),
    Guard(
        "Memory: what its target may have forgotten by now is not sent again",
        "ledger/services/claiming.py",
        "if has_open_doubt(step) and not may_send_again(",
        "if False and not may_send_again(",
        "tests/test_engine_sent_again.py::"
        "test_one_that_waited_beyond_the_targets_memory_is_not_sent",
    ),
    Guard(
        "Pivot: a saga does not turn back while its pivot is in doubt",
        "ledger/services/backward.py",
        "    if pivot_in_doubt(unit, saga):\n",
        "    if False:\n",
        "tests/test_engine_pivot.py::test_a_no_turns_nothing_back_while_the_pivot_is_out",
    ),
    Guard(
        "Order: a step waits for every step before it, and not only for its neighbour",
        "ledger/services/forward.py",
        "if done.state == StepState.REJECTED and must_wait(done):",
        "if False:",
        "tests/test_engine_order.py::test_what_waited_behind_a_step_that_was_rejected_waits_on",
    ),
]
