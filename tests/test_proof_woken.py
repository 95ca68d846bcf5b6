"""A worker stopped past its lease, as a person sees it: nothing changes when it wakes, and what
it has to say is on the saga's page (crash-points P16)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import httpx

from saga_console.home import BASE_DIR
from tests.proofcast import Agent, Console, address, step, wait_for_states
from tests.running import clean_env, eventually
from tests.test_proof_crash import REDRIVEN_WITHIN_S, worker_of

PASSWORD = "correct horse battery staple"


def at_the_pages(console: Console, name: str) -> httpx.Client:
    """A person who has logged in, without JavaScript."""
    done = subprocess.run(
        [sys.executable, "manage.py", "operator", name, "--group", "viewers", "--password-stdin"],
        cwd=BASE_DIR,
        env=clean_env(console.home, **console.env),
        input=PASSWORD,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    client = httpx.Client(base_url=console.url, timeout=30, follow_redirects=True)
    form = client.get("/login/")
    assert form.status_code == 200, form.text
    (token,) = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', form.text)[:1]
    sent = {"username": name, "password": PASSWORD, "csrfmiddlewaretoken": token}
    client.post("/login/", data=sent, headers={"Referer": console.url}).raise_for_status()
    return client


def told(page: str) -> str:
    """What stands on a page, without its tags."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_what_a_woken_worker_says_is_on_the_page_and_changes_nothing(
    console: Console, prover: Agent
) -> None:
    email = address()
    person = at_the_pages(console, "vera-who-watches")
    with console.wire as wire:
        saga = prover.open(step("one", email))
        eventually(lambda: wire.held > 0, "the call is out")
        stopped = worker_of(console, saga)
        os.kill(stopped, signal.SIGSTOP)
    try:
        wait_for_states(prover, [saga], "committed", within_s=REDRIVEN_WITHIN_S)
        before = prover.saga(saga)
        seen = told(person.get(f"/sagas/{saga}/").text)
        assert "attempt.expired" in seen
        assert "late answer" not in seen
    finally:
        os.kill(stopped, signal.SIGCONT)
    eventually(lambda: prover.kinds(saga)["attempt.late"] == 1, "it has said what it knew")
    page = told(person.get(f"/sagas/{saga}/").text)
    assert "late answer, changed nothing" in page
    assert "attempt.late" in page
    after = prover.saga(saga)
    changed = {"updated_at"}  # the time of the last entry
    assert {k: v for k, v in after.items() if k not in changed} == {
        k: v for k, v in before.items() if k not in changed
    }
    (made,) = console.customers(email)
    assert made["id"] in page
    console.assert_verifies()
