"""One foreground process that runs the console: web, relay and workers.

A single thread and one select loop: output, deaths, restarts and signals are seen in one
place and in order.
"""

from __future__ import annotations

import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from saga_console.children import Child

_LOOK_S = 0.1
_COLOURS = (36, 32, 33, 35, 34)


class Voice:
    """Lines with a padded name in front, coloured on a terminal only."""

    def __init__(self, names: Sequence[str]) -> None:
        self.width = max(len(name) for name in names)
        self.colour = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(names)}
        self.is_terminal = sys.stdout.isatty()

    def say(self, name: str, line: str) -> None:
        prefix = f"{name:<{self.width}} |"
        if self.is_terminal:
            prefix = f"\x1b[{self.colour.get(name, 37)}m{prefix}\x1b[0m"
        # Whoever read our output may be gone; the console goes on and stops in order.
        try:
            print(prefix, line, flush=True)
        except (BrokenPipeError, OSError):
            sys.stdout = open("/dev/null", "w", encoding="utf-8")  # noqa: SIM115, PTH123


class Supervisor:
    """Runs children until it is told to stop, or until `finished` names an exit status."""

    def __init__(self, voice: Voice) -> None:
        self.voice = voice
        self.children: list[Child] = []
        self.signals = 0
        self.exit_status: int | None = None

    def say(self, line: str) -> None:
        self.voice.say("saga", line)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A signal asks for an orderly end (a closed terminal too); a second one kills."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = [signal.signal(number, self._on_signal) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Says nothing: a print may be interrupted by it, and is not re-entrant."""
        self.signals += 1
        if self.signals > 1:
            for child in self.children:
                child.kill()

    @property
    def is_stopping(self) -> bool:
        return self.signals > 0 or self.exit_status is not None

    def add(self, child: Child) -> None:
        self.children.append(child)
        child.start()

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Go on until `until()` holds or somebody asks to stop."""
        while not self.is_stopping and not until():
            self._listen(_LOOK_S)
            for child in tuple(self.children):
                self._look_after(child)

    def _listen(self, seconds: float) -> None:
        speaking = {child.output: child for child in self.children if child.process}
        open_ones = [fd for fd, child in speaking.items() if child.is_running]
        if not open_ones:
            time.sleep(seconds)
        ready, _, _ = select.select(open_ones, [], [], seconds)
        for descriptor in ready:
            self._repeat(speaking[descriptor])
        if ready:
            time.sleep(0.01)  # let a burst gather instead of waking for each line

    def _repeat(self, child: Child) -> None:
        for line in child.lines():
            self.voice.say(child.name, line)

    def _look_after(self, child: Child) -> None:
        if child.is_running or child.process is None:
            return
        if self.is_stopping:  # asked last: a second signal has ended what is not running
            return
        if child.start_again_at is None:
            self._repeat(child)
            self._take_note_of_end(child)
        elif time.monotonic() >= child.start_again_at:
            if child.process.stdout:
                child.process.stdout.close()
            child.start()

    def _take_note_of_end(self, child: Child) -> None:
        assert child.process is not None
        if child.unfinished_line:
            self.voice.say(child.name, child.unfinished_line.decode(errors="replace"))
            child.unfinished_line = b""
        child.kill()  # what it had started would keep its port
        if child.at_its_end == "restart":
            delay = child.plan_restart()
            self.voice.say(child.name, f"{child.ending()}; starting it again in {delay:g} s")
            return
        self.children.remove(child)
        if child.at_its_end == "stop":
            self.exit_status = child.process.returncode
        elif child.process.returncode:
            self.voice.say(child.name, child.ending())

    def stop(self, *groups: Sequence[Child]) -> None:
        """Ask group after group to end; who outlives its grace is killed."""
        for group in groups:
            for child in group:
                child.ask_to_stop()
            deadline = time.monotonic() + max((child.grace_s for child in group), default=0)
            while any(child.is_running for child in group) and time.monotonic() < deadline:
                self._listen(_LOOK_S)
            for child in group:
                if child.is_running:
                    self.voice.say(child.name, f"did not end within {child.grace_s:g} s: killed")
                child.kill()
                if child.process is not None:
                    child.process.wait()
                    self._repeat(child)
