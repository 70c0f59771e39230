"""Rules of chaos with an exception for a group or a handover still find violations."""

from dataclasses import replace

import pytest

from handlers.connection.evidence import KEPT_MS
from handlers.group import next_step
from local.chaos import gap_rules, stream_rules
from local.chaos.facts import uncovered
from local.chaos.group_schedule import generate, generate_groups
from local.chaos.invariants import violations
from local.chaos.plans import Fault
from local.chaos.schedule import Schedule
from local.chaos.simulate import run_schedule, run_world
from local.simulation.upstream_memory import Memory
from tests.planted.schedules import CALM, PLAIN, group, stream

# Its upstream ends the older connection, and then refuses the cursor as too old: it keeps half a second.
FORGETFUL = replace(PLAIN, reconnect_tries=3, events_every_ms=300, memory=Memory(keeps=2, word="frame"))
# Time for three more handovers, each of them calm.
MORE_MS = 90_000


def broken() -> set[str]:
    """Return the rules that a stream breaks if first the store refuses its function, and then its peer does."""
    schedule = generate_groups(1029)
    alone = replace(schedule, group=tuple(one for one in schedule.group if one.name == "m11"))
    return {violation.kind for violation in run_schedule(alone).violations}


def test_a_functions_back_off_may_end_a_row_of_tries_as_the_machines_does() -> None:
    """The first try after a long back-off followed a random pause, and the one after it comes at once."""
    assert broken() == set()


def test_a_function_whose_back_offs_are_not_drawn_is_in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """With back-offs that are not drawn, the rule is broken, so it checks the back-off itself."""
    monkeypatch.setattr(next_step, "backoff_bounds_s", lambda *_of: (1, 1))
    assert "in-step" in broken()


@pytest.mark.parametrize("schedule", [FORGETFUL, group(FORGETFUL)], ids=["alone", "in a group"])
def test_a_connection_that_evicts_and_has_an_expired_cursor_may_connect_again(
    schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but an expired cursor may leave the stream unconnected, and for too long it breaks a rule."""
    world = run_world(schedule, more_ms=MORE_MS)
    stream = world.beside[0] if schedule.group else world
    links = stream.upstream.links
    holes = uncovered(stream, links[0].opened_ms or 0, stream.clock.now_ms())
    assert holes
    assert {start for start, _ in holes} <= {link.closed_ms for link in links if link.has_forgotten}
    assert violations(world) == []
    monkeypatch.setattr(stream_rules, "EXPIRY_MS", 0)
    assert {violation.kind for violation in violations(world)} == {"stuck", *(["disturbed"] if schedule.group else [])}


def test_a_stop_request_that_overtakes_a_post_wins() -> None:
    """The POST joins before the DELETE and is answered after it: the stream stays stopped, and no rule is broken."""
    world = run_world(group(stream("evicts", Fault(20_135, "stop"), joins_ms=20_000), CALM))
    requests = [line.partition("m0: ")[2].rstrip() for line in world.log if "m0: POST" in line or "m0: DELETE" in line]
    assert requests == ["POST", "DELETE", "POST is answered: SUCCEEDED"]
    assert violations(world) == []


def test_events_older_than_an_upstream_keeps_may_be_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A default resume may leave a short gap for older events: a group learns late that a connection caught up."""
    schedule = generate_groups(9043)
    world = run_world(replace(schedule, group=schedule.group[:1]))
    assert violations(world) == []
    monkeypatch.setattr(gap_rules, "KEPT_MS", 2 * KEPT_MS)
    assert {violation.kind for violation in violations(world)} == {"invented"}


def test_events_that_two_relieved_connections_left_may_be_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A default resume and its successor were relieved within a second; the third resumed 5 s back, too late."""
    world = run_world(generate(4100003587))
    assert violations(world) == []
    monkeypatch.setattr(gap_rules, "_has_lasted", lambda _world, _records, link, _until_ms: link.opened_ms is not None)
    assert {violation.kind for violation in violations(world)} == {"invented"}


def test_a_group_ends_with_its_last_stream() -> None:
    """The group's function ends in the same turn as its last stream, not a second later with the next heartbeat."""
    schedule = generate_groups(18)
    alone = replace(schedule, group=tuple(one for one in schedule.group if one.name == "m4"))
    log = run_schedule(alone).log
    (closed_ms,) = (_at_ms(line) for line in log if "m4: link 4 closed" in line)
    (ended_ms,) = (_at_ms(line) for line in log if "r2 (lane B of e2) ends: stopped" in line)
    assert ended_ms - closed_ms == 27


def _at_ms(line: str) -> int:
    return round(float(line.split()[0]) * 1000)
