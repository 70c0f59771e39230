"""`python -m bench.memory`: measures the memory of the function as it is deployed, under load and with large events.

Each framing is measured with events as items and in a log, and two framings also with a compressed body. The function
has TLS to the upstream and to DynamoDB, and trusts all authorities of this machine. The upstream sends events as fast
as they are taken, and then mixes in events up to the profile's bound, which cannot be compressed to the size of an
item, so they go to the bucket. `--share` limits the function to the share of a core that Lambda gives to so many
megabytes, if this process may make a cgroup (version 1). The result is the largest resident memory. Invariant: every
event that was sent is stored.
"""

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence

from bench.function import start_function
from bench.harness import Row, goal_if, parse_options, say, show
from bench.upstreams import FRAMES, MIB, Plan
from handlers.api.verdict import plural

GOAL_MB, GROUP_GOAL_MB = 90, 110
STORES = ("items", "log")
# What all streams of a group do at once, and the size of their large events.
GROUP_KINDS = (("calm", 0), ("flood", 0), ("large", MIB), ("unfinished", MIB), ("unfinished", 10**7))


async def measure(plan: Plan, share_mb: int) -> Row:
    """Return the figures of a function with one stream, with the share of a core of `share_mb`; 0 for a core."""
    began_s = time.monotonic()
    async with start_function(plan, share_mb) as function:
        asked_s, cpu_s = (await function.report())["asked_s"], function.cpu_s
        answer = await function.answer
        spent_s, lasted_s = function.cpu_s - cpu_s, time.monotonic() - asked_s
        sent, most_mb = (await function.report())["sent"], function.most_mb
    returned = json.loads(answer.payload)
    # In `raw`, a chunk that arrives in two parts is two events.
    stored = min(returned.get("stored", 0), sent) if plan.framing == "raw" else returned.get("stored")
    assert stored == sent, f"{returned}: {sent} were sent"
    return {
        "events": sent,
        "cold_start_s": round(asked_s - began_s, 2),
        "cpu_us": round(spent_s / sent * 1e6, 1),
        "events_per_s": round(sent / lasted_s),
        "most_mb": round(most_mb, 1),
    }


def kinds(framings: Sequence[str], stores: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield what is measured: framing, store, and whether the body is compressed."""
    for framing in framings:
        yield from ((framing, store, False) for store in stores)
        if framing in ("sse", "ndjson"):
            yield framing, stores[-1], True


def rows_alone(asked: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each kind of stream that has the function to itself."""
    for framing, store, is_compressed in kinds(asked.framing, asked.store):
        plan = Plan(
            {"load": 1},
            framing,
            store,
            asked.events_per_s,
            asked.event_bytes,
            max_frame_bytes=asked.max_frame_bytes,
            is_tls=True,
            seconds=asked.seconds,
            large=asked.large,
            is_compressed=is_compressed,
        )
        kind = {"framing": framing, "store": store, "body": "gzip" if is_compressed else "plain"}
        yield kind | asyncio.run(measure(plan, asked.share))


def rows_of_groups(asked: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each function with so many streams that all do the same."""
    for framing, store in itertools.product(asked.framing, asked.store):
        for behaviour, large_bytes in GROUP_KINDS:
            plan = Plan({behaviour: asked.streams}, framing, store, large_bytes=large_bytes, is_tls=True)
            most_mb = asyncio.run(largest_memory_mb(plan, asked.seconds))
            what = f"{behaviour} {large_bytes or ''}".strip()
            yield {"framing": framing, "store": store, "all": what, "most_mb": round(most_mb, 1)}


async def largest_memory_mb(plan: Plan, seconds: float) -> float:
    """Return the largest memory of the function of a plan."""
    async with start_function(plan) as function:
        await function.until_all_stored(plan.ids)
        await function.run_for(seconds)
        return function.most_mb


def main(argv: list[str] | None = None) -> int:
    """Print the figures and return 0, or 1 if one of them misses the goal."""
    asked = parse_options(
        argv,
        __doc__,
        framing=([*FRAMES], "which framings", [*FRAMES]),
        store=(STORES, "which stores", STORES),
        events_per_s=(0, "a second, 0 for as many as possible"),
        seconds=(4.0, "for how long before the large events"),
        event_bytes=(200, "bytes of JSON in an event"),
        large=(3, "how many large events of each size"),
        max_frame_bytes=(16 * MIB, "the profile's bound"),
        share=(0, "the share of a core of a function of so many MB"),
        streams=(1, "measure a group of so many streams instead, which all do the same at once"),
    )
    is_group = asked.streams > 1
    rows = []
    for row in rows_of_groups(asked) if is_group else rows_alone(asked):
        say(__doc__, row)
        rows.append(row)
    goal_mb, most_mb = GROUP_GOAL_MB if is_group else GOAL_MB, max(row["most_mb"] for row in rows)
    figures = {"goal_mb": goal_mb, "most_mb": most_mb, "share_mb": asked.share, "streams": asked.streams, "rows": rows}
    what = plural(asked.streams, "stream") if is_group else "a function"
    return show(asked, figures, [goal_if(what, f"below {goal_mb} MB: {most_mb} MB", most_mb < goal_mb)])


if __name__ == "__main__":
    sys.exit(main())
