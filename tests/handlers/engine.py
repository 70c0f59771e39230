"""AWS as separate processes, for requests that moto does not support, above all PartiQL batches with parameters."""

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import urllib3

from local.checkout import ROOT
from local.listener import bind, port_of
from local.service import embedded_aws
from local.service.embedded_aws import EmbeddedAws, lock


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Yield the address of an engine whose data is in `folder`; it ends afterwards."""

    async def nothing() -> None:
        return None

    with lock(folder) as lock_file, asyncio.Runner() as runner:
        engine = EmbeddedAws(folder, bind(0, "the test"), lock_file, lambda: None, nothing, print, print)
        try:
            runner.run(engine.start())
            yield engine.url
        finally:
            runner.run(engine.stop())


@contextmanager
def tables(other: str) -> Iterator[str]:
    """Yield the address of a DynamoDB in memory, or the address `other` if this machine has no build of it."""
    program = embedded_aws.find_dynoxide(ROOT)
    if program is None:
        yield other
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = port_of(free)
    with subprocess.Popen([program, "--port", str(port)], stdout=subprocess.DEVNULL) as child:
        try:
            url = f"http://127.0.0.1:{port}"
            urllib3.request("GET", url, retries=urllib3.Retry(40, backoff_factor=0.01))
            yield url
        finally:
            child.terminate()
