"""Computes what checkpoints cost, durable functions beside SQS and DynamoDB by hand, and checks a published table.

A checkpoint by hand is one request to SQS (the message that carries the step on), one write unit for the lease and the
body: an item of as many units as it has KB, or over 8 KB an object of S3 with an item of one unit that refers to it. A
replay is one request to SQS and reads the checkpoints before it in one Query, 4 KB a read unit, and each object.

    8 KB by hand     0.40 SQS + 0.625 lease + 8 × 0.625 body = 6.025 a million
    8 KB durable     8.00 an operation + 8 GB × 0.25 = 10.00 a million

Invariant: every amount follows from the price list; of what was published nothing enters a computation.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from local.costs.prices import MILLION, Prices

PUBLISHED = Path(__file__).with_name("checkpoints.toml")
# From here up the body lies in S3.
ITEM_KB = 8
READ_UNIT_KB = 4
# Published amounts have three digits behind the point.
DIGITS = 3


@dataclass(frozen=True, slots=True)
class Cell:
    """An amount in US dollars a million: as it was published, and as it follows from the prices."""

    table: str
    row: str
    column: str
    published: float
    computed: float

    @property
    def agrees(self) -> bool:
        """Returns whether both are the same to the tenth of a cent."""
        return round(self.computed, DIGITS) == round(self.published, DIGITS)


class Checkpoints:
    """What a million checkpoints or replays cost."""

    def __init__(self, prices: Prices) -> None:
        self._durable = MILLION * prices.usd("lambda_durable", "million_operations")
        self._gb_written = prices.usd("lambda_durable", "gb_written")
        self._sqs = MILLION * prices.usd("sqs", "million_requests")
        self._write_unit = MILLION * prices.usd("dynamodb", "million_write_units")
        self._read_unit = MILLION * prices.usd("dynamodb", "million_read_units")
        self._put = MILLION * prices.usd("s3", "million_writes")
        self._get = MILLION * prices.usd("s3", "million_reads")
        self._transition = MILLION * prices.usd("step_functions", "million_transitions")

    def durable(self, size_kb: float) -> float:
        """Returns what checkpoints of a durable function cost: an operation and the bytes written (10^9 a GB)."""
        return self._durable + self._gb_written * size_kb

    def durable_replay(self) -> float:
        """Returns what replays cost: an operation each."""
        return self._durable

    def own(self, size_kb: float) -> float:
        """Returns what checkpoints by hand cost."""
        lease = self._sqs + self._write_unit
        if size_kb > ITEM_KB:
            return lease + self._put + self._write_unit
        return lease + math.ceil(size_kb) * self._write_unit

    def own_replay(self, size_kb: float, checkpoints: int = 1) -> float:
        """Returns what replays by hand cost that read so many checkpoints."""
        if size_kb > ITEM_KB:
            return self._sqs + self._read_unit + checkpoints * self._get
        return self._sqs + math.ceil(size_kb * checkpoints / READ_UNIT_KB) * self._read_unit

    def crossover_kb(self) -> float:
        """Returns the size of a checkpoint from which a Standard transition costs less than a durable one."""
        return (self._transition - self._durable) / self._gb_written

    def transition_ratio(self) -> float:
        """Returns how many durable operations a Standard transition costs."""
        return self._transition / self._durable


def cells(prices: Prices, path: Path = PUBLISHED) -> list[Cell]:
    """Returns every published amount beside the one that follows from the prices."""
    published = tomllib.loads(path.read_text(encoding="utf-8"))
    cost = Checkpoints(prices)
    found = []
    for row, amounts in published["per_million"]["rows"].items():
        size_kb = float(row.split()[0])
        computed = (cost.durable(size_kb), cost.own(size_kb), cost.durable_replay(), cost.own_replay(size_kb))
        for column, said, follows in zip(published["per_million"]["columns"], amounts, computed, strict=True):
            found.append(Cell("per million", row, column.replace("_", " "), said, follows))
    for row, amounts in published["own_replay"]["rows"].items():
        for count, said in zip(published["own_replay"]["read"], amounts, strict=True):
            follows = cost.own_replay(float(row.split()[0]), count)
            found.append(Cell("own replay, by checkpoints read", row, str(count), said, follows))
    return found


def text(prices: Prices) -> str:
    """Returns the tables as they follow from the prices; what was published otherwise is marked and named."""
    lines: list[str] = [f"US dollars a million, at the prices of {prices.as_of}"]
    found = cells(prices)
    for table in dict.fromkeys(cell.table for cell in found):
        own = [cell for cell in found if cell.table == table]
        columns = list(dict.fromkeys(cell.column for cell in own))
        widths = [max(9, len(column)) for column in columns]
        lines += ["", table, "size".ljust(8) + "".join(f"  {c:>{w}}" for c, w in zip(columns, widths, strict=True))]
        for row in dict.fromkeys(cell.row for cell in own):
            amounts = [cell for cell in own if cell.row == row]
            shown = [f"{cell.computed:.3f}{' ' if cell.agrees else '*'}" for cell in amounts]
            lines.append(row.ljust(8) + "".join(f"  {s:>{w}}" for s, w in zip(shown, widths, strict=True)))
    lines.append("")
    for cell in (cell for cell in found if not cell.agrees):
        lines.append(
            f"* {cell.table}, {cell.row}, {cell.column}: published as {cell.published:.3f}, which does not follow from "
            f"the prices; {cell.computed:.3f} does"
        )
    cost = Checkpoints(prices)
    lines.append(f"a Standard transition costs {cost.transition_ratio():.3f} durable operations")
    lines.append(f"a transition is cheaper than a durable checkpoint of more than {cost.crossover_kb():g} KB")
    return "\n".join(lines)


def as_json(prices: Prices) -> dict[str, Any]:
    """Returns the object that `--json` prints."""
    cost = Checkpoints(prices)
    return {
        "prices_as_of": prices.as_of,
        "cells": [asdict(cell) | {"agrees": cell.agrees} for cell in cells(prices)],
        "transition_ratio": cost.transition_ratio(),
        "crossover_kb": cost.crossover_kb(),
    }
