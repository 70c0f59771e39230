"""Runs the exhaustive proof of the handover protocol: `python -m tests.chaos.model --policy P --faults kill=2`.

It has the explorations of the test suite (`DEFAULT`) and those of a longer run (`DEEP`). Each is a policy and a budget
of faults, and explores every interleaving to the end unless `--depth` limits the steps. If an invariant does not hold,
it prints the shortest trace and exits with 1. See docs/proofs.md.
"""

from __future__ import annotations

import argparse
import sys

from handlers.api.verdict import plural
from tests.chaos.explorer import Result, explore
from tests.chaos.model_steps import Model
from tests.chaos.model_world import POLICIES

FAULTS = (
    "kill", "vanish", "freeze", "unheard", "drop", "refuse", "forbid", "lost", "late", "stop", "post", "renew", "event",
    "orphan", "again", "end",
)  # fmt: skip
Exploration = tuple[str, dict[str, int]]


def _each(policies: str, *budgets: dict[str, int]) -> tuple[Exploration, ...]:
    return tuple((policy, budget) for policy in policies.split() for budget in budgets)


# Most faults, each under the policy that makes few states of it.
DEFAULT: tuple[Exploration, ...] = (
    *_each("evicts", {"refuse": 1}, {"stop": 1}, {"renew": 1, "end": 1}),
    *_each("tolerates", {"forbid": 1}, {"late": 1}, {"post": 1}),
    *_each("forbids", {"kill": 1}),
)
DEEP: tuple[Exploration, ...] = (
    *DEFAULT,
    *_each("evicts", {"drop": 1}),
    *_each("tolerates", {"renew": 1}),
    *_each("hot", {"renew": 1}),
    *_each("forbids", {"event": 1}),
    *_each("tolerates", {"stop": 1}, {"kill": 1}, {"drop": 1}, {"event": 1}, {"refuse": 1, "late": 1}),
    *_each("tolerates", {"vanish": 1}, {"freeze": 1}),
    *_each("evicts", {"kill": 1}, {"renew": 1}, {"forbid": 1}, {"event": 1}, {"refuse": 1, "late": 1}),
    *_each("forbids", {}, {"drop": 1}, {"drop": 1, "again": 1}, {"refuse": 1}, {"late": 1}, {"renew": 1}),
    *_each("forbids", {"stop": 1}, {"post": 1}, {"vanish": 1}, {"freeze": 1}),
    *_each("evicts tolerates forbids", {"lost": 1}),
    *_each("hot", {"kill": 1}, {"drop": 1}),
    *_each("hot forbids", {"forbid": 1}),
    *_each("tolerates forbids hot", {"renew": 1, "end": 1}),
    *_each("evicts tolerates forbids", {"stop": 1, "post": 1}),
    *_each("forbids", {"kill": 1, "drop": 1}, {"vanish": 1, "drop": 1}, {"kill": 1, "drop": 1, "again": 1}),
    *_each("forbids", {"kill": 2}, {"kill": 1, "vanish": 1}, {"freeze": 1, "kill": 1}, {"unheard": 1}),
    *_each("evicts tolerates", {"kill": 1, "drop": 1}, {"kill": 1, "stop": 1}, {"kill": 2}, {"drop": 2}),
    *_each("evicts tolerates", {"kill": 1, "renew": 1}, {"drop": 1, "renew": 1}, {"kill": 1, "refuse": 1, "late": 1}),
    *_each("evicts tolerates", {"lost": 1, "kill": 1}, {"lost": 1, "drop": 1}, {"lost": 1, "stop": 1}),
    *_each("evicts tolerates hot", {"orphan": 1}),
    *_each("evicts tolerates", {"stop": 1, "post": 1, "kill": 1}, {"kill": 1, "event": 1}, {"event": 2}),
    *_each("evicts tolerates forbids", {"drop": 2, "again": 2}),
    *_each("evicts tolerates hot", {"drop": 1, "again": 1}),
    *_each("hot", {"stop": 1}, {"kill": 1, "drop": 1}, {"lost": 1}, {"stop": 1, "post": 1}, {"event": 1}),
)


def explored(policy: str, budget: dict[str, int], depth: int = 0) -> tuple[Result, str]:
    """Returns an exploration and a line about it, with the trace if an invariant does not hold."""
    result = explore(Model(policy, budget), depth=depth)
    faults = ",".join(f"{name}={count}" for name, count in budget.items()) or "none"
    how = "all" if result.complete else "bounded"
    line = (
        f"{policy} faults {faults}: {how} {plural(result.states, 'state')}, "
        f"{plural(result.transitions, 'transition')}, depth {result.depth}, {result.seconds:.1f} s"
    )
    if not result.violation:
        ways = f"connected within {result.connected_ticks} ticks, at rest within {result.stable_ticks}"
        return result, f"{line}, {ways}"
    return result, "\n".join([f"{line}\nVIOLATION {result.message}", *result.trace])


def _budget(text: str) -> dict[str, int]:
    budget: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, _, count = part.partition("=")
        if name not in FAULTS or not (count or "1").isdigit():
            raise argparse.ArgumentTypeError(f"{part!r} is none of {', '.join(FAULTS)}, with =N where more than one")
        budget[name] = int(count or "1")
    return budget


def _depth(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 (no bound) on")
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if every invariant holds in every requested exploration, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.model", description="explore the handover protocol")
    parser.add_argument("--policy", choices=POLICIES, help="explore this policy alone")
    parser.add_argument("--faults", type=_budget, help="such as kill=2,drop; none with an empty text")
    parser.add_argument("--depth", type=_depth, default=0, help="stop after so many steps")
    parser.add_argument("--deep", action="store_true", help="the longer explorations")
    asked = parser.parse_args(arguments)
    table = DEEP if asked.deep else DEFAULT
    if asked.faults is not None:
        table = tuple((policy, asked.faults) for policy in POLICIES)
    failed, states, transitions = False, 0, 0
    for policy, budget in table:
        if asked.policy in (None, policy):
            result, line = explored(policy, budget, asked.depth)
            print(line, flush=True)
            failed = failed or bool(result.violation)
            states, transitions = states + result.states, transitions + result.transitions
    print(f"{plural(states, 'state')}, {plural(transitions, 'transition')}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
