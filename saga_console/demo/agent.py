"""A scripted, forgetful agent: plain REST, one dependency (httpx), nothing of the console.

    SAGA_URL=… SAGA_TOKEN=… python agent.py STORY --run ID --facts FILE

Each story is one task, or more. What the agent sees goes to stdout, one line at a time; what
it asked for goes to FILE, so that somebody else can compare it with what the targets say.
"""

from __future__ import annotations

import argparse
import json
import os
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

FINISHED = {"committed", "failed", "rejected", "cancelled", "compensated", "corrected"}
ENDED = {"completed", "compensated", "stuck"}
# A person may take a while; a demo that nobody answers for this long has gone wrong.
PATIENCE_S = 60.0
WAIT_S = 10
AMOUNT = 4200
AT_ONCE = 8
GOOD_CARD = "pm_card_visa"
# The payment server's test card that can be saved, but declines every charge.
BAD_CARD = "pm_card_chargeCustomerFail"

Facts = dict[str, Any]


class GaveUp(Exception):
    """The console did not do what the agent had to rely on."""


class Console:
    """The few calls that an agent needs."""

    def __init__(self, url: str, token: str) -> None:
        self.http = httpx.Client(
            base_url=f"{url.rstrip('/')}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=WAIT_S + 20,
            trust_env=False,
        )

    def open(self, task_id: str, name: str) -> tuple[int, Any]:
        """The task's saga, new (201) or the same as before (200)."""
        answer = self.http.post("/sagas", json={"task_id": task_id, "name": name})
        return answer.status_code, expect(answer, 200, 201)

    def ask(self, saga: Any, step_id: str, tool: str, args: Any, reason: str) -> httpx.Response:
        """Propose a step and take whatever comes back."""
        step = {"step_id": step_id, "tool": tool, "args": args, "reason": reason}
        return self.http.post(f"/sagas/{saga['id']}/steps", json=step)

    def step(self, saga: Any, step_id: str) -> Any:
        """The step of this saga with the agent's own name for it."""
        found = expect(self.http.get(f"/sagas/{saga['id']}"), 200)
        return next(step for step in found["steps"] if step["step_id"] == step_id)

    def finished(self, step: Any, seen: Callable[[str], None] | None = None) -> Any:
        """The step once it has finished. With `seen`, look often and tell each new state."""
        deadline = time.monotonic() + PATIENCE_S
        state = ""
        while time.monotonic() < deadline:
            headers = {} if seen else {"Prefer": f"wait={WAIT_S}"}
            step = expect(self.http.get(f"/steps/{step['id']}", headers=headers), 200, 202)
            if seen and step["state"] != state:
                seen(step["state"])
            state = step["state"]
            if state in FINISHED:
                return step
            if seen:
                time.sleep(0.05)
        raise GaveUp(f"step {step['step_id']} is still {state} after {PATIENCE_S:.0f} s")

    def do(self, saga: Any, step_id: str, tool: str, args: Any, reason: str) -> Any:
        """Propose a step and wait for its end."""
        expect(self.ask(saga, step_id, tool, args, reason), 200, 202)
        step = self.finished(self.step(saga, step_id))
        say(f"{tool} → {step['state']}" + (f" ({short(step['error'])})" if step["error"] else ""))
        return step

    def ended(self, saga: Any) -> Any:
        """The saga once it has ended, or is stuck."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            saga = expect(self.http.get(f"/sagas/{saga['id']}"), 200)
            if saga["state"] in ENDED:
                return saga
            time.sleep(0.2)
        raise GaveUp(f"saga {saga['task_id']} is still {saga['state']} after {PATIENCE_S:.0f} s")

    def complete(self, saga: Any) -> None:
        expect(self.http.post(f"/sagas/{saga['id']}/complete"), 200, 202)

    def ledger(self, saga: Any) -> list[Any]:
        """All entries of the saga, oldest first."""
        entries: list[Any] = []
        while True:
            after = {"after": entries[-1]["seq"] if entries else 0}
            page = expect(self.http.get(f"/sagas/{saga['id']}/ledger", params=after), 200)
            if not page["items"]:
                return entries
            entries += page["items"]


def expect(answer: httpx.Response, *statuses: int) -> Any:
    """The body, when the status is one of those; the problem as an error otherwise."""
    if answer.status_code not in statuses:
        raise GaveUp(
            f"{answer.request.method} {answer.request.url.path} gave {answer.status_code}:"
            f" {answer.text[:500]}"
        )
    return answer.json()


def say(line: str) -> None:
    print(line, flush=True)


def short(error: Any) -> str:
    """What went wrong, as one line."""
    detail = error.get("detail", error) if isinstance(error, dict) else error
    return textwrap.shorten(str(detail), 90, placeholder=" …")


def told(answer: httpx.Response) -> str:
    """An answer in a few words: status, the problem's kind or the step's state, and whose."""
    body = answer.json()
    words = [str(answer.status_code)]
    if answer.is_error:
        words.append(str(body.get("type", "")).rstrip("/").rpartition("/")[2])
    else:
        words.append(body["state"])
    if answer.headers.get("Idempotent-Replayed") == "true":
        words.append("the stored answer")
    if body.get("effect_of"):
        words.append("of the first step")
    return " · ".join(words)


def charge_and_open(console: Console, task: str, name: str, order: str) -> tuple[Any, str]:
    """A saga whose customer has paid; returns it and the payment's id."""
    _, saga = console.open(task, name)
    args = {"order_id": order, "amount": AMOUNT, "currency": "eur", "payment_method": GOOD_CARD}
    charge = console.do(saga, "charge", "payments.charge", args, "the customer checks out")
    if charge["state"] != "committed":
        raise GaveUp(f"the charge is {charge['state']}: {charge['error']}")
    return saga, charge["result"]["id"]


def refund(console: Console, run: str) -> Facts:
    """One refund, asked for again and again."""
    order = f"R-{run}"
    saga, payment = charge_and_open(console, f"refund-{run}", f"Cancel order {order}", order)
    why = "the customer cancelled"
    console.do(saga, "cancel", "orders.cancel", {"order_id": order}, why)
    args = {"payment_intent": payment, "amount": AMOUNT, "note": "Cancelled by the customer"}

    def once(_: int) -> httpx.Response:
        return console.ask(saga, "refund", "payments.refund", args, why)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        answers = list(threads.map(once, range(AT_ONCE)))
    counted = Counter(told(answer) for answer in answers)
    say(f"asks for the refund {AT_ONCE} times at once:")
    for words, count in counted.most_common():
        say(f"    {count}x {words}")
    step = console.finished(console.step(saga, "refund"))
    say(f"the refund → {step['state']}")
    reworded = args | {"note": "Customer has cancelled; please refund"}
    again = console.ask(saga, "refund", "payments.refund", reworded, "did it go through?")
    say(f"asks in other words: {told(again)}")
    lost = console.ask(saga, "give-money-back", "payments.refund", args, "no refund in my notes")
    say(f"loses its memory, asks as a new step: {told(lost)}")
    _, other = console.open(f"refund-{run}-again", f"Refund order {order}")
    elsewhere = console.ask(other, "refund", "payments.refund", args, "a task with no history")
    say(f"asks in a whole new task: {told(elsewhere)}")
    console.complete(other)
    return {"payment": payment, "order": order, "amount": AMOUNT, "asked": AT_ONCE + 3}


def restarted(console: Console, run: str) -> Facts:
    """The same task in a new process, which knows nothing but the task's id and its script."""
    status, saga = console.open(f"refund-{run}", f"Cancel order R-{run}")
    say(f"restarts, opens its task again: {status}, the same saga with {len(saga['steps'])} steps")
    first = console.step(saga, "refund")
    again = console.ask(saga, "refund", "payments.refund", first["args"], "was I done?")
    say(f"asks for the refund once more: {told(again)}")
    console.complete(saga)
    say(f"the saga → {console.ended(saga)['state']}")
    return {"asked": 1}


def provision(console: Console, run: str) -> Facts:
    """Three things that work and one that never will."""
    domain, name = f"shop-{run}.example", f"shop-{run}"
    _, saga = console.open(f"provision-{run}", f"Set up {domain}")
    why = "a new shop needs its own machine"
    machine = {"name": name, "image": "ami-03cf127a", "size": "t3.micro"}
    console.do(saga, "instance", "cloud.instance", machine, why)
    zone = console.do(saga, "zone", "dns.zone", {"name": domain}, why)
    record = {
        "name": f"www.{domain}",
        "address": "192.0.2.10",
        "zone_id": zone["result"]["zone_id"],
    }
    console.do(saga, "record", "dns.record", record, why)
    console.do(saga, "database", "cloud.database", {"name": name, "subnet_group": "not-there"}, why)
    saga = console.ended(saga)
    undone = undo_order(console, saga)
    say(f"the saga → {saga['state']}; undone: {', '.join(undone)}")
    return {"name": name, "domain": domain, "undone": undone}


def undo_order(console: Console, saga: Any) -> list[str]:
    """The undone steps in the order in which the ledger recorded their end."""
    last = {entry["step_id"]: entry["seq"] for entry in console.ledger(saga) if entry["step_id"]}
    undone = [step for step in saga["steps"] if step["state"] in ("compensated", "corrected")]
    by_end = sorted(undone, key=lambda step: last.get(step["id"]) or last[step["step_id"]])
    return [step["step_id"] for step in by_end]


def ambiguous(console: Console, run: str) -> Facts:
    """A refund whose answer never comes back."""
    order = f"A-{run}"
    saga, payment = charge_and_open(console, f"ambiguous-{run}", f"Refund order {order}", order)
    args = {"payment_intent": payment, "amount": AMOUNT, "note": "Arrived broken"}
    expect(console.ask(saga, "refund", "payments.refund", args, "it arrived broken"), 200, 202)
    states: list[str] = []
    step = console.finished(console.step(saga, "refund"), states.append)
    say(f"payments.refund → {' → '.join(states)}")
    names = (step["id"], step["step_id"])
    kinds = [entry["kind"] for entry in console.ledger(saga) if entry["step_id"] in names]
    say(f"the ledger: {', '.join(kinds)}")
    console.complete(saga)
    return {"payment": payment, "found": (step["result"] or {}).get("id")}


def mail(console: Console, run: str) -> Facts:
    """A mail that cannot be called back, in a saga that ends backwards."""
    order, to = f"M-{run}", f"ada-{run}@customer.example"
    _, saga = console.open(f"mail-{run}", f"Check out order {order}")
    why = "the customer checks out"
    console.do(saga, "confirm", "orders.confirm", {"order_id": order}, why)
    letter = {"order_id": order, "to": to, "text": "Thank you! Your order is on its way.\n"}
    console.do(saga, "mail", "mail.confirmation", letter, why)
    card = {"order_id": order, "amount": AMOUNT, "currency": "eur", "payment_method": BAD_CARD}
    console.do(saga, "charge", "payments.charge", card, why)
    saga = console.ended(saga)
    say(f"the saga → {saga['state']}; undone: {', '.join(undo_order(console, saga))}")
    return {"order": order, "to": to}


def waiting(console: Console, run: str) -> Facts:
    """Two refunds that wait for you."""
    for number, (amount, note) in enumerate(
        [(AMOUNT, "Arrived broken"), (AMOUNT // 2, "One of two items was missing")], start=1
    ):
        order = f"W{number}-{run}"
        saga, payment = charge_and_open(console, f"waiting-{order}", f"Refund order {order}", order)
        args = {"payment_intent": payment, "amount": amount, "note": note}
        answer = console.ask(saga, "refund", "payments.refund", args, note)
        say(f"payments.refund for {order}: {told(answer)}")
    return {}


STORIES: dict[str, Callable[[Console, str], Facts]] = {
    story.__name__: story for story in (refund, restarted, provision, ambiguous, mail, waiting)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("story", choices=STORIES)
    parser.add_argument("--run", required=True, help="makes the names of this run its own")
    parser.add_argument("--facts", type=Path, required=True)
    chosen = parser.parse_args()
    try:
        console = Console(os.environ["SAGA_URL"], os.environ["SAGA_TOKEN"])
        facts = STORIES[chosen.story](console, chosen.run)
    except BrokenPipeError:
        os._exit(1)  # whoever listened has stopped, and so does the story
    except (GaveUp, httpx.HTTPError) as error:
        say(f"gives up: {error}")
        return 1
    chosen.facts.write_text(json.dumps(facts))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
