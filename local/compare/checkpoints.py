"""Computes the cost of checkpoints, with durable functions and by hand with SQS and DynamoDB; checks a published table.

A checkpoint by hand is one request to SQS (the message that continues the step), one write unit for the lease, and the
body: an item with a unit per KB, or, over 8 KB, an object of S3 and an item of one unit that refers to it. A replay is
one request to SQS; it reads the earlier checkpoints in one Query, 4 KB per read unit, and each object.

    8 KB by hand     0.40 SQS + 0.625 lease + 8 × 0.625 body = 6.025 a million
    8 KB durable     8.00 an operation + 8 GB × 0.25 = 10.00 a million

Invariant: every amount follows from the price list; published amounts enter no computation.
"""

import math
import tomllib
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from local.costs.prices import MILLION, Prices

PUBLISHED = Path(__file__).with_name("checkpoints.toml")
# From this size on, the body is in S3.
ITEM_KB = 8
READ_UNIT_KB = 4
# Published amounts have three decimal places.
DIGITS = 3


@dataclass(frozen=True, slots=True)
class Cell:
    """An amount in US dollars per million: as published, and as it follows from the prices."""

    table: str
    row: str
    column: str
    published: float
    computed: float

    @property
    def is_equal(self) -> bool:
        """Returns whether both are equal to a tenth of a cent."""
        return round(self.computed, DIGITS) == round(self.published, DIGITS)


class CheckpointCosts:
    """The cost of a million checkpoints or replays."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        # A durable replay is an operation.
        self.durable_replay_usd = self._million_usd("lambda_durable", "million_operations")
        self._gb_written = prices.usd("lambda_durable", "gb_written")
        self._write_unit = self._million_usd("dynamodb", "million_write_units")

    def _million_usd(self, table: str, name: str) -> float:
        return MILLION * self._prices.usd(table, name)

    def durable_usd(self, size_kb: float) -> float:
        """Returns the cost of checkpoints of a durable function: an operation and the bytes written (10^9 per GB)."""
        return self.durable_replay_usd + self._gb_written * size_kb

    def by_hand_usd(self, size_kb: float) -> float:
        lease = self._million_usd("sqs", "million_requests") + self._write_unit
        if size_kb > ITEM_KB:
            return lease + self._million_usd("s3", "million_writes") + self._write_unit
        return lease + math.ceil(size_kb) * self._write_unit

    def replay_by_hand_usd(self, size_kb: float, checkpoints: int = 1) -> float:
        """Returns the cost of replays by hand that read so many checkpoints."""
        request, unit = (
            self._million_usd("sqs", "million_requests"),
            self._million_usd("dynamodb", "million_read_units"),
        )
        if size_kb > ITEM_KB:
            return request + unit + checkpoints * self._million_usd("s3", "million_reads")
        return request + math.ceil(size_kb * checkpoints / READ_UNIT_KB) * unit

    def crossover_kb(self) -> float:
        """Returns the size from which a durable checkpoint costs more than a Standard transition."""
        return (self._million_usd("step_functions", "million_transitions") - self.durable_replay_usd) / self._gb_written

    def transition_ratio(self) -> float:
        """Returns the cost of a Standard transition in durable operations."""
        return self._million_usd("step_functions", "million_transitions") / self.durable_replay_usd


def compute_cells(prices: Prices) -> list[Cell]:
    """Returns every published amount with the one that follows from the prices."""
    published = tomllib.loads(PUBLISHED.read_text(encoding="utf-8"))
    cost, found = CheckpointCosts(prices), []
    columns, counts = published["per_million"]["columns"], published["own_replay"]["read"]
    for row, amounts in published["per_million"]["rows"].items():
        size_kb = float(row.split()[0])
        computed = (
            cost.durable_usd(size_kb),
            cost.by_hand_usd(size_kb),
            cost.durable_replay_usd,
            cost.replay_by_hand_usd(size_kb),
        )
        for column, said, follows in zip(columns, amounts, computed, strict=True):
            found.append(Cell("per million", row, column.replace("_", " "), said, follows))
    for row, amounts in published["own_replay"]["rows"].items():
        for count, said in zip(counts, amounts, strict=True):
            follows = cost.replay_by_hand_usd(float(row.split()[0]), count)
            found.append(Cell("own replay, by checkpoints read", row, str(count), said, follows))
    return found


def checkpoints_text(prices: Prices) -> str:
    """Returns the tables that follow from the prices; other published amounts are marked and named."""
    lines, found, cost = (
        [f"US dollars per million, at the prices of {prices.as_of}"],
        compute_cells(prices),
        CheckpointCosts(prices),
    )
    for table, own in groupby(found, key=lambda cell: cell.table):
        rows = [list(row) for _, row in groupby(own, key=lambda cell: cell.row)]
        widths = [max(9, len(cell.column)) for cell in rows[0]]
        shown = [("size", [cell.column for cell in rows[0]])]
        shown += [(row[0].row, [f"{cell.computed:.3f}{' ' if cell.is_equal else '*'}" for cell in row]) for row in rows]
        lines += ["", table]
        for head, texts in shown:
            lines.append(head.ljust(8) + "".join(f"  {one:>{width}}" for one, width in zip(texts, widths, strict=True)))
    lines.append("")
    lines += [
        f"* {cell.table}, {cell.row}, {cell.column}: published as {cell.published:.3f}, which does not follow from "
        f"the prices; {cell.computed:.3f} does"
        for cell in found
        if not cell.is_equal
    ]
    lines.append(f"a Standard transition costs {cost.transition_ratio():.3f} durable operations")
    lines.append(f"a transition is cheaper than a durable checkpoint of more than {cost.crossover_kb():g} KB")
    return "\n".join(lines)


def as_json(prices: Prices) -> dict[str, Any]:
    """Returns the object that `--json` prints."""
    cost = CheckpointCosts(prices)
    return {
        "prices_as_of": prices.as_of,
        "cells": [asdict(cell) | {"agrees": cell.is_equal} for cell in compute_cells(prices)],
        "transition_ratio": cost.transition_ratio(),
        "crossover_kb": cost.crossover_kb(),
    }
