"""A policy that would be ignored stops the start."""

from __future__ import annotations

import os
import subprocess
import sys

from saga_console.home import BASE_DIR


def test_a_policy_file_that_would_be_ignored_stops_the_start(tmp_path: object) -> None:
    environment = os.environ | {"SAGA_POLICY": "/etc/saga/policy.toml", "SAGA_HOME": str(tmp_path)}
    argv = [sys.executable, str(BASE_DIR / "manage.py"), "check"]
    found = subprocess.run(
        argv, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode == 1
    assert found.stderr.startswith("SAGA_POLICY: policy files are not read yet")
    assert len(found.stderr.strip().splitlines()) == 1
