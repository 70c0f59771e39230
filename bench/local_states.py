"""`python -m bench.local_states FOLDER`: serves the local Step Functions alone, and prints its port.

Invariant: it is served until the process ends.
"""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.harness import process
from local.aws_endpoints import Endpoints
from local.functions.function_pool import Pool
from local.listener import Listener, bind
from local.service.aws_server import AwsServer
from states_language.clock import RealClock
from states_language.server import StepFunctions, TaskPerformer, settle


async def serve(folder: Path) -> None:
    """Serve on any port, which is printed, until the process ends."""
    clock, endpoints = RealClock(), Endpoints({}, "http://127.0.0.1:9")
    states = StepFunctions(folder, clock)
    pool = Pool([], {}, folder, folder / "logs")
    states.executions.perform = TaskPerformer(pool.invoke, endpoints.client, states).perform
    listener = Listener(AwsServer(states, pool, endpoints).app, bind(0, "a benchmark"))
    await listener.start()
    settle()
    print(listener.port, flush=True)
    await asyncio.Event().wait()


@contextlib.contextmanager
def endpoint() -> Iterator[tuple[str, int]]:
    """Run it in a process of its own; yield its address and its process id."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, process("bench.local_states", folder) as (url, one):
        yield url, one.pid


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
