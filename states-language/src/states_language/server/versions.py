"""Keeps the versions of a state machine, and the aliases that lead to them.

A version is the machine as it was when it was published, under a number that is never used again. An alias leads to one
version, or to two by weight. Source: "Managing continuous deployments with versions and aliases", Developer Guide.
Invariant: an alias leads only to versions that exist.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_VERSIONS = 1000
MOST_ALIASES = 100
"""The most versions, and the most aliases, of one machine (AWS Step Functions quotas)."""


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
    """A name for versions; `routes` are pairs of a version's number and its weight; the weights add up to 100."""

    name: str
    routes: list[tuple[int, int]]
    created_ms: int
    updated_ms: int
    description: str | None = None

    def choose_version(self, draw: float) -> int:
        """Returns the number of the version that one start uses; 0 <= draw < 1 chooses it."""
        first, weight = self.routes[0]
        return first if draw * 100 < weight else self.routes[-1][0]


@dataclass(frozen=True)
class Published:
    """The versions and aliases of one machine; `last` is the greatest number that was ever used."""

    versions: list[Version] = field(default_factory=list)
    aliases: list[Alias] = field(default_factory=list)
    last: int = 0

    def version(self, number: int) -> Version:
        """Returns a version; KeyError for one that does not exist."""
        return {one.number: one for one in self.versions}[number]

    def alias(self, name: str) -> Alias:
        """Returns an alias; KeyError for one that does not exist."""
        return {one.name: one for one in self.aliases}[name]


def restore_published(stored: Mapping[str, Any]) -> Published:
    """Returns the versions and aliases that were stored as JSON."""
    aliases = [
        Alias(**one | {"routes": [(number, weight) for number, weight in one["routes"]]}) for one in stored["aliases"]
    ]
    return Published([Version(**one) for one in stored["versions"]], aliases, stored["last"])


def split_qualifier(arn: str) -> tuple[str, str]:
    """Returns the machine's ARN, and the number or the name after it; "" if there is none. A test case is left out."""
    parts = arn.partition("#")[0].split(":")
    return ":".join(parts[:7]), ":".join(parts[7:])
