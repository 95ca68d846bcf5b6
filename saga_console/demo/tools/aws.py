"""What the AWS tools share: the client, and what an AWS error says about the effect."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
)

from ledger.tools.python import Drill, ToolFailed, ToolRetry, ToolUnknown
from saga_console.demo import cloud

THROTTLES = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded"})


@functools.cache
def client(service: str) -> Any:
    """A client of the demo's cloud; boto3 clients may be shared between threads."""
    return cloud.client(service, os.environ["SAGA_DEMO_CLOUD_URL"])


def drill(args: dict[str, Any]) -> Drill:
    """A drill in the second cloud. In its process the first one's variable holds its address."""
    return Drill(args=args, environment={"SAGA_DEMO_CLOUD_URL": "env:SAGA_DEMO_CLOUD_SANDBOX_URL"})


@contextmanager
def asked() -> Iterator[None]:
    """Say what an AWS error means for the effect: not sent, refused, or nobody knows."""
    try:
        yield
    except (EndpointConnectionError, ConnectTimeoutError) as error:
        raise ToolRetry(str(error)) from error
    except ClientError as error:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        code = error_code(error)
        said = f"{code}: {error.response['Error']['Message']}"
        if code in THROTTLES or status in (429, 503):
            raise ToolRetry(said) from error
        if 400 <= status < 500:
            raise ToolFailed(said) from error
        raise ToolUnknown(said) from error
    except BotoCoreError as error:
        raise ToolUnknown(str(error)) from error


def error_code(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])
