"""Requests that must not be repeated (`again = false`), on the deployed machine in virtual time."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.connection.effects import Outcome, Progress
from handlers.connection.ends import without_retry
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.run.group_ports import Needs
from local import stages
from local.simulation.scenario import Scenario, Upstream, Window, read
from local.simulation.scripted_upstream import ScriptedUpstream
from local.simulation.shared_tasks import set_once
from local.simulation.slots import Slot, stream_needs
from local.simulation.virtual_function import VirtualFunction
from local.simulation.virtual_sandbox import VirtualSandbox
from local.simulation.virtual_stage import INPUT, STAGE, VirtualStage, machine_in
from states_language import Execution
from tests.examples import examples
from tests.handlers.profile.profiles import profile, refusal

SCENARIO = stages.ROOT / "local" / "costs" / "month.yml"
HOUR_MS = 3_600_000
TABLE: dict[str, Any] = {
    "address": "https://upstream.invalid/x",
    "method": "POST",
    "framing": "sse",
    "resume": "none",
    "key": "each",
    "end": {"event": "end"},
}


class Sandbox(VirtualSandbox):
    """Functions that perform every step; at `losses_ms` the machine loses the running functions, which run on."""

    def __init__(self, stage: VirtualStage, of: Profile, upstream: "Counting", losses_ms: Iterable[int] = ()) -> None:
        super().__init__(stage, of, upstream)
        for at_ms in losses_ms:
            stage.clock.call_at(stage.origin_ms + at_ms, self._lose_all)

    def _lose_all(self) -> None:
        for ended in self._running.values():
            set_once(ended)(Outcome("Lambda.Unknown", "", "no answer came"))

    def _needs(self, function: VirtualFunction) -> Needs:
        return stream_needs(function, Slot(function, self._upstream), self._profile, self._store)


class Counting(ScriptedUpstream):
    """An upstream that counts its requests, and those that it answered with a stream."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.asked: list[Any] = []
        self.refused, self.posts = 0, 1

    def _status(self, others_are_open: bool) -> int:
        status = super()._status(others_are_open)
        self.refused += status in (204, 403, 429, 503)
        return status

    @property
    def begun(self) -> int:
        """Return how many requests the upstream may have begun: all that it did not refuse."""
        return len(self.asked) - self.refused

    def open(self, client: Any, cursor: str | None) -> Any:
        link = super().open(client, cursor)
        self.asked.append(link)
        return link

    @property
    def answered(self) -> int:
        """Return how many requests the upstream answered with a stream."""
        return sum(link.opened_ms is not None for link in self.asked)


def asked_once(**upstream: Any) -> Profile:
    return parse("replay", TABLE | upstream, {})


def run(
    of: Profile, kills_ms: tuple[int, ...] = (), again_ms: int = 0, losses_ms: tuple[int, ...] = (), **script: Any
) -> tuple[Execution, Counting]:
    """Return the last execution and the upstream after an hour; a second POST comes at `again_ms`, unless that is 0."""
    source: Scenario = read(SCENARIO, "prod")
    source = replace(source, upstream=Upstream(policy="tolerates", **script), kills_ms=kills_ms)
    stage = VirtualStage(source, machine_in(source.machine, source, stages.names(STAGE)))
    upstream = Counting(stage.clock, source.upstream, stage.origin_ms, stage.latencies.connect_ms)
    sandbox = Sandbox(stage, of, upstream, losses_ms)

    async def passes() -> Execution:
        execution = stage.executions.begin(INPUT, sandbox.perform)
        if again_ms:
            await stage.clock.sleep_until(stage.clock.now_ms() + again_ms)
            upstream.posts += execution.status != "RUNNING"
            execution = stage.executions.begin(INPUT, sandbox.perform)
        await stage.clock.sleep_until(stage.clock.now_ms() + HOUR_MS)
        return execution

    return stage.clock.run(passes()), upstream


MARKLESS = "it ended without its end mark and is not requested again: "


@pytest.mark.parametrize(
    ("script", "kills_ms", "cause"),
    [
        ({"drops_ms": (30_000,)}, (), f"{MARKLESS}the stream was closed (reset)"),
        ({"stalls": (Window(30_000, HOUR_MS),)}, (), f"{MARKLESS}the stream was closed (stalled)"),
        ({"refusals": (Window(0, HOUR_MS, 502),)}, (), f"{MARKLESS}the upstream answered 502"),
        # Longer than a function lives.
        ({}, (), f"{MARKLESS}the function's deadline was reached and no successor had taken over"),
        ({}, (30_000,), "it must not be requested twice, and the earlier request's outcome is unknown"),
        # Between the request and the answer.
        ({}, (600,), "it must not be requested twice, and the earlier request's outcome is unknown"),
    ],
)
def test_an_end_without_the_mark_fails_at_once(script: dict[str, Any], kills_ms: tuple[int, ...], cause: str) -> None:
    """If the stream ends without its end mark, it is requested only once, and the execution fails with StreamBroken."""
    execution, upstream = run(asked_once(), kills_ms=kills_ms, **script)
    assert (execution.status, execution.error, len(upstream.asked)) == ("FAILED", "StreamBroken", 1)
    assert cause in (execution.cause or "")


def test_the_end_mark_ends_the_execution_well() -> None:
    """The end mark ends the execution as succeeded, while the other lane waits; a refusal before it is retried."""
    for refusals in ((), (Window(0, 20_000, 503), Window(20_000, 60_000, 429))):
        execution, upstream = run(asked_once(), refusals=refusals, ends_at_ms=600_000)
        assert (execution.status, execution.output) == ("SUCCEEDED", {"status": "ended"})
        assert (upstream.answered, len(upstream.asked) > 1) == (1, bool(refusals))


def test_a_stream_never_contains_a_second_answer() -> None:
    """A second POST is rejected if the stream has had an answer, and starts the stream if it has not."""
    for script, expected in (
        ({"ends_at_ms": 60_000}, "rejected"),
        ({"refusals": (Window(0, 400_000, 403),)}, "broken"),
    ):
        execution, upstream = run(asked_once(), again_ms=600_000, **script)
        assert upstream.answered == 1
        if expected == "rejected":
            assert execution.output.get("error") == "InvalidRequest"
            assert "request another under another id" in execution.output["cause"]
        else:
            assert execution.error == "StreamBroken"


# Most instants lie in the first minute, around the request; some lie around the handover, which must not request again.
INSTANTS = st.integers(0, 5_000) | st.integers(0, 60_000) | st.integers(0, 1_200_000)
SEVERAL = st.lists(INSTANTS, max_size=4).map(lambda some: tuple(sorted(some)))
REFUSED = st.lists(st.tuples(INSTANTS, st.integers(1, 30_000), st.sampled_from([403, 429, 500, 502, 503])), max_size=3)


@pytest.mark.cpu(8)
@settings(max_examples=examples(60), deadline=None)
@given(SEVERAL, SEVERAL, SEVERAL, REFUSED, st.none() | INSTANTS, INSTANTS)
def test_no_request_that_may_have_begun_is_repeated_after_any_failure(
    kills_ms: tuple[int, ...], losses_ms: tuple[int, ...], drops_ms: tuple[int, ...],
    refused: list[tuple[int, int, int]], ends_at_ms: int | None, again_ms: int,
) -> None:  # fmt: skip
    """Kills, losses by the machine, drops, refusals, ends and a POST while it runs cause no second begun request.

    A POST after the end may make another request, if the first was never answered.
    """
    refusals = tuple(Window(from_ms, from_ms + for_ms, status) for from_ms, for_ms, status in refused)
    script: dict[str, Any] = {"drops_ms": drops_ms, "refusals": refusals, "ends_at_ms": ends_at_ms}
    _, upstream = run(asked_once(), kills_ms, again_ms, losses_ms, **script)
    assert (upstream.begun <= upstream.posts, upstream.answered <= 1) == (True, True)


def test_a_get_and_a_repeatable_post_go_on() -> None:
    """After a drop, a GET and a POST with `again = true` are requested again, and handovers go on."""
    for fields in ({"method": "GET"}, {"again": True}):
        execution, upstream = run(parse("replay", TABLE | fields, {}), drops_ms=(30_000,))
        assert execution.status == "RUNNING"
        assert upstream.answered > 4


def test_the_method_or_the_profile_decides_about_repeating() -> None:
    """A POST is requested once unless the profile sets `again`; such a profile must forbid a second connection."""
    assert [profile(**one).again for one in ({}, {"again": False}, {"method": "POST"}, {"again": True})] == [
        *(True, False, False, True),
    ]
    assert (profile(method="POST").overlap, profile(method="POST", again=True).overlap) == ("forbids", "tolerates")
    sentence = 'overlap must be "forbids", which follows from again = false'
    assert sentence in refusal(method="POST", overlap="evicts")
    assert sentence in refusal(again=False, overlap="tolerates")


@pytest.mark.parametrize(
    ("outcome", "progress", "error"),
    [
        (Outcome("StreamDropped", "", "x"), {"opened_ms": 1}, "StreamBroken"),
        (Outcome("StreamThrottled", "", "x"), {"opened_ms": 1}, "StreamBroken"),
        (Outcome("StreamDropped", "", "x"), {"ended_by": "stalled"}, "StreamBroken"),
        (Outcome("StreamDropped", "", "x"), {"ended_by": "reset"}, "StreamBroken"),
        (Outcome("ConnectionExpired", "", "x"), {"ended_by": "expired"}, "StreamBroken"),
        *((Outcome("StreamDropped", "", "x"), {"ended_by": reason}, "StreamDropped")
          for reason in ("refused", "unreachable", "tls", "rejected", "no_token", "no_ticket")),
        (Outcome("StreamDropped", "", "x", http_status=503), {"ended_by": "refused"}, "StreamDropped"),
        *((Outcome("StreamDropped", "", "x", http_status=status), {"ended_by": "refused"}, "StreamBroken")
          for status in (500, 502, 504)),
        (Outcome("StreamThrottled", "", "x", http_status=529), {"ended_by": "refused"}, "StreamThrottled"),
        (Outcome("StreamDropped", "", "a rest is owed"), {"fence": 0}, "StreamDropped"),
        (Outcome("StoreUnavailable", "", "x"), {"opened_ms": 1}, "StoreUnavailable"),
        (Outcome("StreamRejected", "", "x"), {}, "StreamRejected"),
        (Outcome("", "ended", "x"), {"opened_ms": 1}, ""),
        (Outcome("", "stopped", "x"), {"opened_ms": 1}, ""),
    ],
)  # fmt: skip
def test_a_request_that_may_have_begun_is_broken(outcome: Outcome, progress: dict[str, Any], error: str) -> None:
    """Only a request that surely did not begin may be repeated: it did not reach the upstream, or was refused."""
    assert without_retry(outcome, Progress(**{"fence": 1, "claimed_ms": 0} | progress)).error == error
