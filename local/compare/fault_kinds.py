"""Chooses the faults of a comparison, the same for every strategy: none, calm, rough, or those of a file.

    calm    a reset about every six hours
    rough   a reset every twenty minutes, a peer that falls silent every three hours, 503 for a minute every five,
            and functions whose processes die every eight

Invariant: the same kind, length and seed give the same faults, so that only the strategies differ.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from local.simulation.scenario import Scenario, Upstream, Window, faults_of
from local.terminal import UserError

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SILENCE_MS, REFUSED_MS = 5 * MINUTE_MS, MINUTE_MS
KINDS = ("none", "calm", "rough")


def with_faults(source: Scenario, kind: str) -> Scenario:
    """Returns the scenario with the faults of a kind, or of the file at that path; UserError if it is invalid."""
    draw, until_ms, upstream = random.Random(f"{kind} {source.seed}"), source.run_for_ms, source.upstream
    kills_ms: tuple[int, ...] = ()
    if kind == "calm":
        upstream = replace(upstream, drops_ms=tuple(_instants(draw, 6 * HOUR_MS, until_ms)))
    elif kind == "rough":
        upstream = replace(
            upstream,
            drops_ms=tuple(_instants(draw, 20 * MINUTE_MS, until_ms)),
            stalls=tuple(Window(at, at + SILENCE_MS) for at in _instants(draw, 3 * HOUR_MS, until_ms)),
            refusals=tuple(Window(at, at + REFUSED_MS) for at in _instants(draw, 5 * HOUR_MS, until_ms)),
        )
        kills_ms = tuple(_instants(draw, 8 * HOUR_MS, until_ms))
    elif kind != "none":
        if not os.path.exists(kind):  # Path.exists raises OSError for a name that is too long
            raise UserError(f"--faults must be {', '.join(KINDS)}, or a YAML file: there is none at {kind}.")
        said, kills_ms = faults_of(Path(kind))
        if replace(said, drops_ms=(), stalls=(), refusals=()) != Upstream():
            raise UserError(f"{kind}: upstream: the faults of a comparison can only be drops, stalls and refusals.")
        upstream = replace(upstream, drops_ms=said.drops_ms, stalls=said.stalls, refusals=said.refusals)
    return replace(source, upstream=upstream, kills_ms=kills_ms)


def _instants(draw: random.Random, mean_ms: int, until_ms: int) -> Iterator[int]:
    """Independent instants, on average `mean_ms` apart."""
    at_ms = 0
    while (at_ms := at_ms + 1 + round(draw.expovariate(1 / mean_ms))) < until_ms:
        yield at_ms
