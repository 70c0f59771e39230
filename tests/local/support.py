"""Shared helpers of the local service's tests: a service in a thread, processes, and waiting without sleeping."""

import os
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from patience import PATIENCE, in_thread, until

PROJECT = Path(__file__).resolve().parents[2]
__all__ = ["PATIENCE", "client", "environment", "in_thread", "running", "until"]


def client(service: str, endpoint: str | None, attempts: int = 1) -> Any:
    """Returns a boto3 client of a local endpoint, which sends a request at most `attempts` times."""
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(
            retries={"total_max_attempts": attempts, "mode": "standard"}, connect_timeout=60, read_timeout=120
        ),
    )


def running(pid: int) -> bool:
    """Returns whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def environment(**more: str) -> dict[str, str]:
    """Returns the environment of a subprocess without this machine's AWS settings."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "STREAMKEEPER_", "UPSTREAM_"))
    }
    return kept | more
