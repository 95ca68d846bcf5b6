"""One of the demo's targets, in a process of its own: `python -P serve.py WHICH --port N …`.

The servers are the unchanged third-party packages. What this file decides is where they
listen (loopback only: localstripe's own command listens on every interface), where the
payment store is kept (its own command always takes one fixed path in the temporary
directory, shared by every user of the machine), and that a target never outlives
the console: its standard input is a pipe from the console, and at its end the target ends.

No console imports: this file is run by path. Each process imports only the server that it runs.
"""

from __future__ import annotations

import argparse
import logging
import os
import pickle
import sys
import threading
from pathlib import Path

LOOPBACK = "127.0.0.1"


def end_with_parent() -> None:
    """Leave as soon as the console's end of the pipe closes, even after its kill -9."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def serve_payments(port: int, store: Path) -> None:
    """localstripe on loopback, its objects kept in `store` over a restart."""
    from aiohttp import web  # noqa: PLC0415
    from localstripe import resources, server  # noqa: PLC0415

    def keep(objects: resources.Store) -> None:
        fresh = store.with_suffix(".new")
        fresh.write_bytes(pickle.dumps(objects, protocol=pickle.HIGHEST_PROTOCOL))
        fresh.replace(store)

    resources.Store.dump_to_disk = keep
    if store.exists():
        # Written by this very function, into a home that is ours alone.
        dict.update(server.store, pickle.loads(store.read_bytes()))  # noqa: S301
    access = logging.getLogger("aiohttp.access")
    access.setLevel(logging.INFO)
    access.addHandler(logging.StreamHandler())
    # Its clients keep their connections open; 1 s is for an answer under way, not for them.
    web.run_app(
        server.app, host=LOOPBACK, port=port, access_log=access, print=None, shutdown_timeout=1
    )


def serve_cloud(port: int) -> None:
    """moto_server: AWS's own wire formats and errors, in memory."""
    from moto.server import main  # noqa: PLC0415

    main(["-H", LOOPBACK, "-p", str(port)])


def serve_mailbox(port: int, store: Path) -> None:
    """aiosmtpd with its own Maildir handler: every accepted mail becomes one file."""
    from aiosmtpd.main import main  # noqa: PLC0415

    listen = f"{LOOPBACK}:{port}"
    main(["-n", "-l", listen, "-c", "aiosmtpd.handlers.Mailbox", str(store)])


def run() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("which", choices=["payments", "cloud", "mailbox"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--store", type=Path)
    chosen = parser.parse_args()
    end_with_parent()
    if chosen.which == "payments":
        serve_payments(chosen.port, chosen.store)
    elif chosen.which == "cloud":
        serve_cloud(chosen.port)
    else:
        serve_mailbox(chosen.port, chosen.store)


if __name__ == "__main__":
    run()
