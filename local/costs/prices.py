"""Reads the price list, prices.toml, the only place in the project with prices; prices the requests of a sink."""

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("prices.toml")
HOURS = 730  # of a month
MONTH_S = HOURS * 3600
MILLION = 1_000_000
GB = 1024**3


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of one region, as of `as_of`."""

    as_of: str
    region: str
    _tables: dict[str, dict[str, float]]

    def usd(self, table: str, name: str) -> float:
        """The price of one unit, even if the list has that of a million."""
        price = self._tables[table][name]
        return price / MILLION if name.startswith("million_") else price

    def lambda_usd(self, calls: float, billed_ms: float, memory_mb: float) -> float:
        """The price of calls of a function on arm64 that run so long in all."""
        gb_s = billed_ms / 1000 * memory_mb / 1024
        return gb_s * self.usd("lambda", "gb_second_arm64") + calls * self.usd("lambda", "million_requests")

    def log_usd(self, size: float) -> float:
        return size / GB * self.usd("cloudwatch", "log_gb")

    def with_price(self, table: str, name: str, usd: float) -> "Prices":
        """The list with one more price, or a different one."""
        return replace(self, _tables={**self._tables, table: {**self._tables.get(table, {}), name: usd}})


def read(path: Path = FILE) -> Prices:
    data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    tables = {name: value for name, value in data.items() if isinstance(value, dict)}
    return Prices(data["as_of"], data["region"], tables)


# SQS and EventBridge bill a message by 64 KB begun, Kinesis a record by 1 KB begun, and Firehose by 5 KB begun.
CHUNK_BYTES, KINESIS_BYTES, FIREHOSE_BYTES = 64 * 1024, 1024, 5 * 1024
Batches = Sequence[Sequence[int]]


def _count_chunks(batches: Batches, size: int) -> int:
    """How many parts of this size the messages begin."""
    return sum(-(-each // size) for one in batches for each in one)


# The price of a sink's requests, and how much of it they are, each given by the sizes of its messages.
CHARGES: Mapping[str, tuple[str, Callable[[Batches], float]]] = {
    "sqs": ("sqs.million_fifo_requests", lambda batches: _count_chunks([[sum(one)] for one in batches], CHUNK_BYTES)),
    "eventbridge": ("eventbridge.million_events", lambda batches: _count_chunks(batches, CHUNK_BYTES)),
    "kinesis": ("kinesis.gb_in", lambda batches: _count_chunks(batches, KINESIS_BYTES) * KINESIS_BYTES),
    "firehose": ("firehose.gb_in", lambda batches: _count_chunks(batches, FIREHOSE_BYTES) * FIREHOSE_BYTES),
    "s3": ("s3.million_writes", len),
    "lambda": ("lambda.million_requests", len),
    "webhook": ("transfer.gb_out", lambda batches: sum(map(sum, batches))),
}


def sink_usd(kind: str, batches: Batches, prices: Prices) -> float:
    """The cost of a call's requests."""
    name, amount_of = CHARGES[kind]
    amount = prices.usd(*name.split(".")) * amount_of(batches)
    return amount / GB if ".gb_" in name else amount


def with_user_prices(options: Iterable[str], prices: Prices) -> Prices:
    """The list with the user's prices, such as `kinesis.gb_in=0.08`; raises ValueError with a sentence."""
    known = {"kinesis.stream_hour", *(name for name, _ in CHARGES.values())}
    for option in options:
        name, _, text = option.partition("=")
        try:
            price = float(text)
        except ValueError:
            price = math.nan
        if name not in known or not 0 <= price <= MILLION:
            raise ValueError(f"{option!r} is not a price: write NAME=USD, with NAME one of {', '.join(sorted(known))}")
        table, _, field = name.partition(".")
        prices = prices.with_price(table, field, price)
    return prices
