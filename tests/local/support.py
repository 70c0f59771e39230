"""What several tests of the local service share: a service in a thread, processes, and patience without sleeping."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import boto3
from botocore.config import Config

# What takes a second where nothing else runs may take this many on a busy machine. Only a failure waits for so long.
PATIENCE = 20
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 0.5
PROJECT = Path(__file__).resolve().parents[2]
T = TypeVar("T")


def client(service: str, endpoint: str, attempts: int = 1) -> Any:
    """A boto3 client of a local endpoint; it sends a request `attempts` times at most."""
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


@contextlib.contextmanager
def in_thread(service: Callable[[], contextlib.AbstractAsyncContextManager[T]]) -> Iterator[T]:
    """Keeps an asynchronous context open on an event loop in a thread; yields its value."""
    started: list[tuple[T, asyncio.AbstractEventLoop, asyncio.Event]] = []
    ready = threading.Event()

    async def main() -> None:
        end = asyncio.Event()
        async with service() as value:
            started.append((value, asyncio.get_running_loop(), end))
            ready.set()
            await end.wait()

    def run() -> None:
        try:
            asyncio.run(main())
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(120)
    assert started, "the service did not start"
    value, loop, end = started[0]
    try:
        yield value
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(120)


def running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(condition: Callable[[], T], within_s: float = 10.0) -> T:
    """Asks again and again; returns what the condition came to once it is true, or its last answer when time is up.

    `within_s` is what it takes at most where nothing else runs; it gets PATIENCE times as long. The longer it waits,
    the less often it asks: what it asks costs what is waited for as well.
    """
    began_s = time.monotonic()
    pause = threading.Event()
    while not (answer := condition()) and (waited_s := time.monotonic() - began_s) < within_s * PATIENCE:
        pause.wait(min(max(SHORTEST_PAUSE_S, waited_s / 10), LONGEST_PAUSE_S))
    return answer


def children(pid: int) -> list[int]:
    """The process ids below `pid`."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                pids.append(int(stat.parent.name))
    return pids


def environment(**more: str) -> dict[str, str]:
    """The environment of a subprocess without this machine's AWS settings."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "STREAMKEEPER_", "UPSTREAM_"))
    }
    return kept | more
