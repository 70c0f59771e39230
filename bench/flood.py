"""`python -m bench.flood`: measures how a stream that misbehaves slows down the other streams of its function.

A function keeps calm streams, and one more whose upstream floods, sends events of 10 MB, drips, stalls, lies, ends or
refuses. The measure is how long each event of a calm stream takes from its upstream to the table, compared with the
same function without the other stream. Each run has its own function, upstream and table, in three processes.
Invariant: no event of any stream is missing or stored twice.
"""

import asyncio
import sys
from dataclasses import replace

from bench.function import start_function
from bench.harness import Goal, Row, goal_below, goal_if, parse_options, say, show, summary
from bench.upstreams import Plan

ALONE = "none"
FAULTS = ("flood", "large", "drip", "stall", "lies", "ends", "refuses")
# From a calm stream's upstream to the table, whatever the other stream does.
FRESH_MS = 1000


async def measure(fault: str, calm: int, seconds: float, plan: Plan, beside_ms: float, share_mb: int) -> Row:
    """Return the row of one run; `beside_ms` is the p99 of the run without the other stream, 0 if this is that run.

    `times` is the p99 of the calm streams divided by that, `silent` how many of them stored nothing. `stored` counts
    the items of the other stream, and `requests` the requests to the table per second.
    """
    plan = replace(plan, streams={"calm": calm} if fault == ALONE else {"calm": calm, fault: 1})
    async with start_function(plan, share_mb) as function:
        watch, names = function.watch, plan.ids_of_behaviour("calm")
        await function.until_all_stored(names)
        function.restart_measurement()
        cpu_s = function.cpu_s
        await function.run_for(seconds)
        lags = summary([lag_ms for name in names for lag_ms in watch.lags_ms[name]])
        p99_ms = lags["p99_ms"] or 0
        return {
            "fault": fault,
            "lags": lags,
            "times": round(p99_ms / (beside_ms or p99_ms or 1), 2),
            "silent": sum(not watch.lags_ms[name] for name in names),
            "stored": sum(watch.items[name] for name in plan.ids if name not in names),
            "requests": round(function.tables.requests / seconds, 1),
            "cores": round((function.cpu_s - cpu_s) / seconds, 2),
            "most_mb": round(function.most_mb, 1),
        }


def goals(fault: str, p99_ms: float | None, silent: int) -> list[Goal]:
    """Return the goals of the calm streams beside one with this fault; `silent` of them stored nothing."""
    return [
        goal_below(fault, "p99 of the others, from upstream to table", FRESH_MS, p99_ms),
        goal_if(fault, "each of the others stores events", silent == 0),
    ]


def main(argv: list[str] | None = None) -> int:
    """Print the rows and return 0, or 1 if a goal is missed."""
    asked = parse_options(
        argv,
        __doc__,
        calm=(99, "calm streams"),
        seconds=(10.0, "how long each run is measured"),
        events_per_s=(1.0, "of each calm stream"),
        event_bytes=(200, "bytes of JSON in an event"),
        store=("items", "which store", ("items", "log")),
        faults=(FAULTS, "what the other does", FAULTS),
        share=(0, "as much of a core as so many MB have"),
    )
    # Waiting for a fuller segment is no lag, so a log is written at once.
    fields = "flush_s = 0" if asked.store == "log" else ""
    plan = Plan({}, "sse", asked.store, asked.events_per_s, asked.event_bytes, fields=fields)
    rows: list[Row] = []
    for fault in (ALONE, *asked.faults):
        beside_ms = rows[0]["lags"]["p99_ms"] or 0 if rows else 0
        rows.append(asyncio.run(measure(fault, asked.calm, asked.seconds, plan, beside_ms, asked.share)))
        say(__doc__, rows[-1])
    judged = [goal for row in rows for goal in goals(row["fault"], row["lags"]["p99_ms"], row["silent"])]
    return show(asked, {"rows": rows}, judged)


if __name__ == "__main__":
    sys.exit(main())
