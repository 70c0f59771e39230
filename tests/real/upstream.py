"""The demonstration upstream in a thread of the test, which can therefore read what the upstream saw."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

from starlette.types import ASGIApp

from local.listener import LOOPBACK, Listener, bind
from local.upstreams.behaviours import BEHAVIOURS, Behaviour
from local.upstreams.demo_streams import Upstreams
from local.upstreams.open_connections import Watch
from tests.local.support import in_thread

# A connection of demo-ndjson outlives any test, so that only the test's own faults end one.
NEVER_S = (3600.0, 3600.0)


@contextlib.contextmanager
def serving(
    watch: Watch | None = None,
    behaviours: Mapping[str, Behaviour] = BEHAVIOURS,
    around: Callable[[ASGIApp], ASGIApp] = lambda app: app,
) -> Iterator[tuple[Upstreams, int]]:
    """Yields the upstream and its port on 127.0.0.1.

    `watch` is called at each change of a stream's connections; `around` may wrap the application.
    """

    @contextlib.asynccontextmanager
    async def service() -> AsyncIterator[tuple[Upstreams, int]]:
        listener: Listener
        upstreams = Upstreams(lambda client: listener.reset(client), None, NEVER_S, watch, behaviours)
        listener = Listener(around(upstreams.app), bind(0, "a test"), hosts=LOOPBACK)
        await listener.start()
        yield upstreams, listener.port
        upstreams.close()
        await listener.close()

    with in_thread(service) as running:
        yield running
