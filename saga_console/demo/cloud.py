"""The demo's door to its AWS target, closed to any real account.

Keys, profile and configuration of whoever runs the demo are left unread, and the address
is always the target's. botocore's own retries are off: whether to send again is the
ledger's decision, and a library that retries behind its back doubles effects.
"""

from __future__ import annotations

import os
from typing import Any

import boto3.session
import botocore.session
from botocore.config import Config

# No one's: the target takes any.
_KEYS = {"aws_access_key_id": "demo", "aws_secret_access_key": "demo"}
_NOTHING_OF_YOURS = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
REGION = "eu-central-1"
# Below the tools' own timeout_s of 15 s, so that the answer is always this call's own.
_ONE_TRY = Config(
    retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=10, max_pool_connections=4
)


def client(service: str, url: str) -> Any:
    """A boto3 client of `service` that talks to `url` only, and tries once."""
    session = boto3.session.Session(
        **_KEYS,
        region_name=REGION,
        botocore_session=botocore.session.Session(session_vars=_NOTHING_OF_YOURS),
    )
    return session.client(service, endpoint_url=url, config=_ONE_TRY)
