"""Versions of a state machine, and the aliases that lead to them.

A version is what the machine was when it was published, under a number that is never given again; an alias leads to one
version, or to two by weight. Source: "Managing continuous deployments with versions and aliases", developer guide.
Invariant: an alias leads only to versions that exist.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_VERSIONS = 1000
MOST_ALIASES = 100
"""Of one machine (AWS Step Functions quotas)."""


@dataclass(frozen=True)
class Version:
    """A machine as it was published; `revision_id` is None for the first revision."""

    number: int
    definition: str
    role_arn: str
    settings: dict[str, Any]
    revision_id: str | None
    created_ms: int
    description: str | None = None


@dataclass(frozen=True)
class Alias:
    """A name for versions; `routes` are pairs of a number and a weight, together 100."""

    name: str
    routes: list[tuple[int, int]]
    created_ms: int
    updated_ms: int
    description: str | None = None

    def version(self, draw: float) -> int:
        """Returns the number of the version of one start; 0 <= draw < 1."""
        first, weight = self.routes[0]
        return first if draw * 100 < weight else self.routes[-1][0]


@dataclass(frozen=True)
class Published:
    """The versions and aliases of one machine; `last` is the greatest number that was ever given."""

    versions: list[Version] = field(default_factory=list)
    aliases: list[Alias] = field(default_factory=list)
    last: int = 0

    def version(self, number: int) -> Version:
        """Returns a version; KeyError for one that does not exist."""
        return {one.number: one for one in self.versions}[number]

    def alias(self, name: str) -> Alias:
        """Returns an alias; KeyError for one that does not exist."""
        return {one.name: one for one in self.aliases}[name]


def restored(stored: Mapping[str, Any]) -> Published:
    """Returns what was stored as JSON."""
    aliases = [
        Alias(**one | {"routes": [(number, weight) for number, weight in one["routes"]]}) for one in stored["aliases"]
    ]
    return Published([Version(**one) for one in stored["versions"]], aliases, stored["last"])


def split(arn: str) -> tuple[str, str]:
    """Returns the ARN of the machine, and the number or the name behind it; "" where there is none."""
    parts = arn.split(":")
    return ":".join(parts[:7]), ":".join(parts[7:])
