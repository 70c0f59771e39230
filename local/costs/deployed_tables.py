"""Reads the tables of a stage from packaging/resources/storage.yml: keys, indexes, backups.

Invariant: requests are counted with the deployed tables; a change of that file changes the cost.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from local.checkout import ROOT
from local.costs.units import Index

STORAGE = ROOT / "packaging" / "resources" / "storage.yml"


@dataclass(frozen=True, slots=True)
class Table:
    """The key of a table, hash before range, and its indexes by name.

    `has_events` says whether its items are events, whose sort keys come from the upstream, and not our records.
    """

    keys: tuple[str, ...]
    indexes: dict[str, Index]
    has_events: bool


class _Template(yaml.SafeLoader):
    """YAML without the values of CloudFormation's functions, on which no cost depends."""


_Template.add_multi_constructor("!", lambda *_: None)


@cache
def read_resources(name: str) -> dict[str, Any]:
    """The resources of packaging/resources/<name>.yml, each with its Type and Properties."""
    text = (STORAGE.parent / f"{name}.yml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.load(text, _Template)["Resources"]
    return found


def events_table() -> Table:
    """The table of events."""
    return _table(read_resources("storage")["EventsTable"], has_events=True)


def control_table() -> Table:
    """The table of leases, cursors and the ledger."""
    return _table(read_resources("storage")["ControlTable"], has_events=False)


def _table(resource: dict[str, Any], *, has_events: bool) -> Table:
    properties = resource["Properties"]
    indexes = {}
    for index in properties.get("GlobalSecondaryIndexes", ()):
        shown = index["Projection"]
        projected = None if shown["ProjectionType"] == "ALL" else tuple(shown.get("NonKeyAttributes", ()))
        indexes[index["IndexName"]] = Index(_keys(index["KeySchema"]), projected)
    return Table(_keys(properties["KeySchema"]), indexes, has_events)


def _keys(schema: list[dict[str, str]]) -> tuple[str, ...]:
    return tuple(key["AttributeName"] for key in schema)
