"""`python -m bench.day`: measures how long DuckDB takes to read a day of the archive, of 86.4 million events.

It writes the day once, hour by hour, with the schema, row groups and compression of `streamkeeper archive`, into files
of at most 384 MB. An event is a trade of about 200 bytes, and its profile has two columns, price and side.
"""

import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
from pyarrow import parquet

from bench.harness import Row, parse_options, say, show
from handlers.profile.columns_field import columns_of_profile
from local.archive import columns, run
from streamkeeper.bulk import HOUR_MS, instant_ms

BEGIN_MS = instant_ms("2026-11-27T00:00:00.000Z")
PROFILE = {"columns": {"price": {"path": "$.p", "type": "double"}, "side": {"path": "$.S", "type": "string"}}}
TRADES = """
    SELECT format('{{}}#{{}}', ms, key) AS position, make_timestamptz(ms * 1000) AS received_at, key, key AS id,
        format('{{{{"e":"trade","s":"BTCUSDT","t":{{}},"T":{{}},"p":"{{:.2f}}","q":"{{:.8f}}","S":"{{}}","b":{{}},'
            '"a":{{}},"m":true,"venue":"exchange.example","note":""}}}}',
            key, ms, price, amount, side, n * 3, n * 7) AS data,
        price, side
    FROM (
        SELECT n, {begin} + (n - {first}) * 3600000 // ({last} - {first}) AS ms, (4000000000 + n)::VARCHAR AS key,
            round(64000 + 40 * sin(n / 1e5) + random(), 2) AS price, -ln(1 - random()) / 5 AS amount,
            CASE WHEN random() < 0.5 THEN 'BUY' ELSE 'SELL' END AS side
        FROM range({first}, {last}) AS numbers(n))
"""
QUERIES = {
    "count of the day by hour": "SELECT hour, count(*) FROM day GROUP BY 1",
    "mean and extremes of a column by minute": (
        "SELECT epoch_ms(received_at) // 60000, avg(price), min(price), max(price) FROM day GROUP BY 1"
    ),
    "sum by another column": "SELECT side, count(*), sum(price) FROM day GROUP BY 1",
    "every body, of one hour": "SELECT sum(length(data)) FROM day WHERE hour = '12'",
    "every body": "SELECT sum(length(data)) FROM day",
}


def write_day(folder: Path, events: int) -> None:
    """Write the hours that do not exist yet."""
    schema = columns.make_table(columns_of_profile("prices", PROFILE), {}, []).schema()
    for hour in range(24):
        place = folder / run.partition("prices", BEGIN_MS + hour * HOUR_MS)
        if not place.exists():
            part = place.with_name(f"{place.name}.part")
            part.mkdir(parents=True, exist_ok=True)
            first, last = (number * events // 24 for number in (hour, hour + 1))
            trades = duckdb.sql(TRADES.format(begin=BEGIN_MS + hour * HOUR_MS, first=first, last=last))
            assert trades is not None
            _write(trades.to_arrow_reader(run.ROWS), schema, part / "part-0000.parquet")
            part.rename(place)
            say(__doc__, f"wrote {hour + 1} of 24 hours")


def _write(batches: Any, schema: Any, path: Path) -> None:
    with path.open("wb") as sink, parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in batches:
            given = dict(zip(batch.schema.names, batch.columns, strict=True))
            rows = [
                given[one.name].cast(one.type) if one.name in given else pyarrow.nulls(len(batch), one.type)
                for one in schema
            ]
            writer.write_table(pyarrow.table(rows, schema=schema))


def main(argv: list[str] | None = None) -> int:
    asked = parse_options(
        argv,
        __doc__,
        folder=("/tmp/streamkeeper-day", "where the archive of so many events is written, 2.3 GB; it stays"),
        events=(86_400_000, "how many events the day has"),
    )
    folder = Path(asked.folder) / str(asked.events)
    write_day(folder, asked.events)
    sizes = [path.stat().st_size for path in folder.glob("stream=*/*/*/*.parquet")]
    rows: list[Row] = [{"files": len(sizes), "GB": round(sum(sizes) / 1e9, 2), "largest MB": round(max(sizes) / 1e6)}]
    duckdb.execute(f"CREATE VIEW day AS FROM read_parquet('{folder}/stream=*/*/*/*.parquet', hive_partitioning = true)")
    timed: list[Row] = []
    for name, query in QUERIES.items():
        begun, cpu = time.perf_counter(), time.process_time()
        count = len(duckdb.execute(query).fetchall())
        taken, used = time.perf_counter() - begun, time.process_time() - cpu
        timed.append({"query": name, "rows": count, "s": round(taken, 1), "CPU s": round(used, 1)})
        say(__doc__, timed[-1])
    return show(asked, {"archive": rows, "queries": timed})


if __name__ == "__main__":
    sys.exit(main())
