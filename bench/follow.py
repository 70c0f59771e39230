"""`python -m bench.follow`: measures how long an event takes from its upstream to a consumer of the Python client.

It follows a demonstration stream of a running service. Each event says when it happened (`at_ms`), and the time until
the consumer has it is measured. Upstream, functions and consumer share one clock. An event waits for the client's next
request, for half of `--every` on average.
"""

import asyncio
import contextlib
import sys
import time

from bench.harness import Row, parse_options, run, show, summary
from local.terminal import UserError
from streamkeeper import Client, StreamkeeperError

_RUNS_S = 60


async def measure(url: str, stream_id: str, seconds: float, every: list[float]) -> list[Row]:
    """Return a row for each interval; raises UserError if there is no such stream."""
    try:
        with Client(url) as client:
            client.start(stream_id)
            for _ in range(_RUNS_S):
                if client.status(stream_id)["status"] == "running":
                    break
                await asyncio.sleep(1)
            return [
                {"every_s": each, **summary(await _measure_delays(client, stream_id, seconds, each))} for each in every
            ]
    except StreamkeeperError as problem:
        raise UserError(str(problem)) from None


async def _measure_delays(client: Client, stream_id: str, seconds: float, every_s: float) -> list[float]:
    """How many milliseconds each event took."""
    times_ms: list[float] = []

    async def consume() -> None:
        async for event in client.follow(stream_id, every_s=every_s):
            times_ms.append(time.time() * 1000 - event.json()["at_ms"])

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(consume(), seconds)
    return times_ms


def main(argv: list[str] | None = None) -> int:
    asked = parse_options(
        argv,
        __doc__,
        url=("http://127.0.0.1:3000", "the API of the run"),
        stream=("demo:follow", "a demonstration stream, which is started"),
        seconds=(60.0, "how long each interval is measured"),
        every=([1.0, 0.1], "how often the client polls, in seconds; several are measured in turn"),
    )
    rows = run(__doc__, measure(asked.url, asked.stream, asked.seconds, asked.every))
    return show(asked, {"follow": rows})


if __name__ == "__main__":
    sys.exit(main())
