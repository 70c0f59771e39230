"""Prices what a sink charges for its requests."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from local.costs.prices import GB, MILLION, Prices

# SQS and EventBridge bill a message by 64 KB begun, Kinesis a record by 1 KB begun, and Firehose by 5 KB begun.
CHUNK_BYTES, KINESIS_BYTES, FIREHOSE_BYTES = 64 * 1024, 1024, 5 * 1024
Batches = Sequence[Sequence[int]]


def _begun(batches: Batches, size: int) -> int:
    """How many parts of this size the messages begin."""
    return sum(-(-each // size) for one in batches for each in one)


# The price of a sink's requests, and how much of it they are, each given by the sizes of its messages.
CHARGES: Mapping[str, tuple[str, Callable[[Batches], float]]] = {
    "sqs": ("sqs.million_fifo_requests", lambda batches: _begun([[sum(one)] for one in batches], CHUNK_BYTES)),
    "eventbridge": ("eventbridge.million_events", lambda batches: _begun(batches, CHUNK_BYTES)),
    "kinesis": ("kinesis.gb_in", lambda batches: _begun(batches, KINESIS_BYTES) * KINESIS_BYTES),
    "firehose": ("firehose.gb_in", lambda batches: _begun(batches, FIREHOSE_BYTES) * FIREHOSE_BYTES),
    "s3": ("s3.million_writes", len),
    "lambda": ("lambda.million_requests", len),
    "webhook": ("transfer.gb_out", lambda batches: sum(map(sum, batches))),
}


def sink_usd(kind: str, batches: Batches, prices: Prices) -> float:
    """The cost of a call's requests."""
    name, amount_of = CHARGES[kind]
    amount = prices.usd(*name.split(".")) * amount_of(batches)
    return amount / GB if ".gb_" in name else amount


def priced_by(options: Iterable[str], prices: Prices) -> Prices:
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
        prices = prices.also(table, field, price)
    return prices
