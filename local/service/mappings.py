"""Keeps the event source mappings of the run: for each that the template has, a task that calls its function.

Invariant: a mapping goes on from the place on disk that the one before it has left.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from local.aws_endpoints import Endpoints
from local.service.event_sources import EventSourceMapping, Invoke, Places, Streams
from local.stack import EventSource


class Mappings:
    """Those of one run, whose places are in the folder `data`.

    `is_kept` is whether what plays the tables' streams knows them after its end; `say` prints a line.
    """

    def __init__(self, endpoints: Endpoints, data: Path, say: Callable[[str], None], *, is_kept: bool) -> None:
        self._endpoints = endpoints
        self._data = data
        self._say = say
        self._is_kept = is_kept
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, sources: Iterable[EventSource], invoke: Invoke) -> None:
        """Has the streams of tables call functions, unless they do."""
        for source in sources if not self._tasks else ():
            places = Places(self._data / f"event-source-{source.function}.json", is_kept=self._is_kept)
            streams = Streams(self._endpoints, source.table)
            mapping = EventSourceMapping(source, streams, places, invoke, self._say)
            self._tasks.append(asyncio.create_task(mapping.run()))

    def end(self) -> None:
        """Ends them."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []
