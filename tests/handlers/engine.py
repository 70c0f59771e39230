"""The embedded AWS as a process of its own: what moto cannot play, batches of PartiQL with parameters above all."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.listener import bind
from local.service.embedded_aws import EmbeddedAws, lock


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The address of an engine whose data is in `folder`; it is gone afterwards."""

    async def nothing() -> None:
        return None

    with lock(folder) as lock_file, asyncio.Runner() as runner:
        engine = EmbeddedAws(folder, bind(0, "the test"), lock_file, lambda: None, nothing, print, print)
        runner.run(engine.start())
        try:
            yield engine.url
        finally:
            runner.run(engine.stop())
