"""Holds the fields of a distributed Map, which `map_run` runs."""

from dataclasses import dataclass

from states_language.distributed.item_reader import Batcher, Reader
from states_language.distributed.result_writer import Writer
from states_language.machine import Machine
from states_language.states.amounts import NumberField


@dataclass(frozen=True)
class Distribution:
    """The fields. machine: what each execution runs. express: whether each is an Express one.

    tolerated_count, tolerated_share: how many items, or how many percent of them, may fail; none if both are absent.
    """

    machine: Machine
    express: bool
    label: str | None
    tolerated_count: NumberField
    tolerated_share: NumberField
    reader: Reader | None
    batcher: Batcher | None
    writer: Writer | None
