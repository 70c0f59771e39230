"""A stream that wants a token and a ticket, in virtual time: tokens expire and are revoked, both servers go away."""

import random
from dataclasses import replace
from typing import Any

import pytest

from handlers.profile.parse import parse
from handlers.run.group_ports import Needs
from local import stages
from local.simulation.guarded_upstream import GuardedUpstream
from local.simulation.scenario import Scenario, Upstream, read
from local.simulation.slots import Slot, stream_needs
from local.simulation.virtual_function import VirtualFunction
from local.simulation.virtual_ports import PromptPool
from local.simulation.virtual_sandbox import VirtualSandbox
from local.simulation.virtual_stage import INPUT, STAGE, VirtualStage, machine_in
from local.upstreams.played_auth import CLIENT, PlayedAuth
from tests.examples import examples

SCENARIO = stages.ROOT / "local" / "costs" / "month.yml"
RUN_MS, CALM_MS = 3_600_000, 900_000
PROFILE = parse(
    "replay",
    {
        "address": "https://upstream.invalid/x?ticket={ticket}",
        "framing": "sse",
        "resume": {"header": "Last-Event-ID"},
        "reject_after": 3600,
        "token": {
            "kind": "client_credentials",
            "address": "https://auth.invalid/token",
            "id": CLIENT,
            "secret": "${secret:key}",
        },
        "ticket": {"address": "https://auth.invalid/ticket", "path": "$.ticket"},
    },
    {},
)


class Sandbox(VirtualSandbox):
    """Functions that leave no step out, and how many of them ran."""

    functions = 0

    def _needs(self, function: VirtualFunction) -> Needs:
        self.functions += 1
        slot, pool = Slot(function, self._upstream), PromptPool(function.bell, "the store")
        return stream_needs(function, slot, self._profile, self._store, pool)


def drawn(seed: int) -> tuple[Upstream, list[tuple[int, str, int]], int]:
    """The upstream's drops, what happens to the servers when and for how long, and how long a token lives."""
    draws = random.Random(f"guarded {seed}")
    drops = sorted(draws.randrange(60_000, RUN_MS - CALM_MS) for _ in range(draws.randrange(12)))
    kinds = ("token", "ticket", "revoke")
    events = [
        (draws.randrange(RUN_MS - CALM_MS), draws.choice(kinds), draws.randrange(1_000, 240_000))
        for _ in range(draws.randrange(8))
    ]
    return Upstream(policy="tolerates", drops_ms=tuple(drops)), sorted(events), draws.choice((20, 300, 3600))


@pytest.mark.parametrize("seed", range(examples(40)))
def test_a_guarded_stream_is_connected_again_whatever_its_servers_do(seed: int) -> None:
    """And no token is requested that is not needed: one a function, and more only for what expired or was refused."""
    script, events, lives_s = drawn(seed)
    source: Scenario = replace(read(SCENARIO, "prod"), upstream=script)
    stage = VirtualStage(source, machine_in(source.machine, source, stages.names(STAGE)))
    clock = stage.clock
    auth = PlayedAuth(clock.now_ms, random.Random(seed), lives_s)
    upstream = GuardedUpstream(clock, stage.upstream(), auth)
    sandbox: Any = Sandbox(stage, PROFILE, upstream)  # type: ignore[arg-type]
    revoked: list[int] = []

    def strikes(kind: str, for_ms: int) -> None:
        if kind == "revoke":
            auth.revoke()
            revoked.append(clock.now_ms())
        else:
            upstream.away[kind] = max(upstream.away.get(kind, 0), clock.now_ms() + for_ms)

    async def run() -> str:
        execution = stage.executions.begin(INPUT, sandbox.perform)
        for at_ms, kind, for_ms in events:
            clock.call_at(stage.origin_ms + at_ms, lambda kind=kind, for_ms=for_ms: strikes(kind, for_ms))  # type: ignore[misc]
        await clock.sleep_until(stage.origin_ms + RUN_MS)
        return execution.status

    said = f"seed {seed}: tokens of {lives_s} s, {events}, drops at {script.drops_ms}"
    assert clock.run(run()) == "RUNNING", said
    assert any(link.is_open for link in upstream.stream._links), said
    given = [(at_ms, status) for at_ms, name, status in upstream.asked if name == "token" and status == 200]
    openings = [at_ms for at_ms, name, status in upstream.asked if name == "ticket"]
    # Of one function and between two tokens of it there is always a reason: it expired, or a 401 said so.
    if lives_s == 3600 and not revoked:
        assert len(given) <= sandbox.functions, said
    assert len(given) <= len(openings) + len(revoked), said
