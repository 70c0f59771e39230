"""Each shipped profile with its provider, which `local/upstreams` plays: handover, resume, loss and end.

docs/profiles.md has a table of these; the last test compares it with the tests.
"""

import contextlib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import urllib3

from handlers.connection.effects import Progress
from handlers.connection.evidence import Record
from handlers.connection.ledger import find_gaps
from handlers.connection.steps import Report
from handlers.framing.frames import Frame
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.profile.upstream_requests import request_of
from handlers.run.threads import SystemClock
from handlers.store import control_record
from local.profiles.profile_files import placeholders
from local.upstreams.behaviours import BEHAVIOURS, Behaviour
from local.upstreams.demo_streams import Upstreams
from local.upstreams.provider_player import point_to_player, serve_providers
from tests.examples import one_in
from tests.handlers.aws import CONTROL, EVENTS, Aws, save_connection
from tests.handlers.lanes import Lane, start_lane
from tests.local.support import until
from tests.shipped import PROVIDERS, STREAMS

PAGE = Path(__file__).parents[2] / "docs" / "profiles.md"
IDS = {name: name if name in ("completions", "x-filtered") else f"{name}:one" for name in BEHAVIOURS}
HOUR_MS = 3_600_000
# The quickest rate at which events stay distinct.
BUSY = {"interval_ms": 20, "loses_every": 0}
FOLLOWED = sorted(BEHAVIOURS.keys() - {"completions"})
RESUMED = sorted(name for name, one in BEHAVIOURS.items() if one.resume[0])
PASSING = sorted(set(FOLLOWED) - set(RESUMED))
BEATING = sorted(name for name, one in BEHAVIOURS.items() if one.heartbeat)
# The providers whose profile says that events are numbered without holes.
NUMBERED = ("binance", "coinbase", "kraken", "responses")
TOO_OLD: list[tuple[str, dict[str, int]]] = [
    ("companies-house", {}), ("kubernetes", {}), ("kubernetes", {"expired": 410}),
]  # fmt: skip


@dataclass
class Stage:
    """A played provider, and its profile."""

    aws: Aws
    stream_id: str
    profile: Profile
    upstreams: Upstreams
    origin: str

    def start(self, lane: str = "A", lasts_ms: int = 120_000, progress_every_ms: int = 100) -> Lane:
        return start_lane(self.aws, self.profile, self.stream_id, lane, lasts_ms, progress_every_ms)

    def connect(self, lasts_ms: int = 60_000) -> Report:
        """Make the one connection of an invocation that may not reconnect by itself."""
        return replace(self, profile=replace(self.profile, reconnect_tries=0)).start(lasts_ms=lasts_ms).last_report

    def connected(self) -> Report:
        """Connect until a connection stores an event; return it. On a busy machine the provider may close earlier."""
        reports: list[Report] = []

        def stores() -> bool:
            reports.append(self.connect())
            return reports[-1].progress.stored > 0

        assert until(stores), reports
        return reports[-1]

    def stored(self) -> list[int]:
        """Return the numbers of the stored events, in order."""
        texts = [item["data"] for item in self.aws.items(EVENTS, self.stream_id).values()]
        return sorted(int(max(re.findall(r"[0-9]+", text), key=len)) for text in texts)

    def most(self) -> int:
        """Return how many connections there were at once at most."""
        return max(
            self.upstreams.open_connections.most_at_once(one) for one in self.upstreams.open_connections.stream_ids()
        )


def shipped(name: str) -> Profile:
    """Return the profile as it ships."""
    text = (STREAMS / f"{name}.toml").read_text()
    return parse(name, tomllib.loads(text), placeholders(text))


@contextlib.contextmanager
def played(aws: Aws, name: str, **changes: Any) -> Iterator[Stage]:
    """Yield the provider, with `changes` to its behaviour."""
    behaviour: Behaviour = replace(BEHAVIOURS[name], **changes)
    profile = shipped(name)
    if profile.resume is not None and profile.resume.back_s:
        profile = replace(profile, resume=replace(profile.resume, back_s=1))
    with serve_providers({name: behaviour}) as (origin, upstreams):
        yield Stage(aws, IDS[name], point_to_player(profile, origin), upstreams, origin)


def test_every_profile_that_ships_is_played() -> None:
    """Every shipped profile has a played provider, except the demonstration streams with upstreams of their own."""
    assert set(PROVIDERS) == set(BEHAVIOURS)


# Finnhub forbids two connections and cannot resume: its handovers are gaps.
@pytest.mark.parametrize("name", one_in(4, [name for name in FOLLOWED if name != "finnhub"]))
def test_a_handover_loses_nothing_and_stores_each_once(aws: Aws, name: str) -> None:
    """At a handover the older lane is taken over, and the stored events have no hole and no duplicate."""
    with played(aws, name, **BUSY) as stage:
        older = stage.start("A")
        assert until(lambda: len(stage.stored()) >= 3)
        newer = stage.start("B")
        assert (older.last_report.outcome.error, older.last_report.progress.ended_by) == (
            "StreamTakenOver",
            "taken_over",
        )
        known = len(stage.stored())
        assert until(lambda: len(stage.stored()) >= known + 3)
        aws.stop(stage.stream_id)
        assert newer.last_report.outcome.status == "stopped"
        most = stage.most()
    stored = stage.stored()
    # A session of MCP has its own messages, so a message that both sessions received is an event of each.
    numbers = sorted(set(stored)) if name == "mcp" else stored
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert older.last_report.progress.stored + newer.last_report.progress.stored == len(stored)
    assert most == (1 if stage.profile.overlap == "forbids" else 2)


def test_a_completion_is_requested_once(aws: Aws) -> None:
    """A completion is requested once, because a second request would be a second completion; the other lane waits."""
    with played(aws, "completions", interval_ms=20, length=10_000) as stage:
        older = stage.start("A")
        assert until(lambda: len(stage.stored()) >= 3)
        assert stage.start("B").last_report.outcome.error == "StreamTakenOver"
        aws.stop(stage.stream_id)
        assert (older.last_report.outcome.status, stage.most()) == ("stopped", 1)


@pytest.mark.parametrize("name", one_in(4, RESUMED))
def test_events_since_the_providers_end_are_requested(aws: Aws, name: str) -> None:
    """After the provider ends the connection, with or without a message, the next request's cursor closes the gap."""
    # Older events than the stream's own look as if the ids had started over: the backfill asks for no other ones.
    with played(aws, name, **BUSY, ends_after_s=3 if BEHAVIOURS[name].backfill else 0.3) as stage:
        report = stage.connected()
        says = "disconnected_by_upstream" if BEHAVIOURS[name].last_text else "ended_by_upstream"
        assert (report.outcome.error, report.progress.ended_by) == ("StreamDropped", says)
        first, closed_ms = stage.stored(), SystemClock().now_ms()
        assert report.progress.stored == len(first)
        assert until(lambda: SystemClock().now_ms() > closed_ms + 100)
        assert stage.connect().progress.resumed
    numbers = stage.stored()
    assert (numbers, len(numbers) > len(first)) == (list(range(numbers[0], numbers[-1] + 1)), True)


@pytest.mark.parametrize("name", one_in(4, PASSING))
def test_events_that_cannot_be_requested_again_are_a_gap(aws: Aws, name: str) -> None:
    """If a provider cannot resume, the next connection begins with present events, and the gap stays open."""
    with played(aws, name, **BUSY, ends_after_s=1) as stage:
        report = stage.connected()
        assert (report.outcome.error, report.progress.ended_by) == ("StreamDropped", "ended_by_upstream")
        first = stage.stored()
        stage.profile = replace(stage.profile, reconnect_tries=0)
        again = stage.start()
        assert until(lambda: len(stage.stored()) > len(first))
        aws.stop(stage.stream_id)
        assert not again.last_report.progress.resumed
    gaps = [item for key, item in aws.items(CONTROL, stage.stream_id).items() if key.startswith("gap#")]
    assert {(gap["cause"], gap["state"]) for gap in gaps} == {("ended_by_upstream", "open")}


def test_heartbeats_are_signs_of_life_and_no_events(aws: Aws) -> None:
    """Heartbeats of each provider keep a connection without events alive past its stall limit, and are not stored."""
    changes = {"interval_ms": HOUR_MS, "heartbeat_ms": 500, "ends_after_s": 0}
    with contextlib.ExitStack() as stack:
        stages = [stack.enter_context(played(aws, name, **changes)) for name in BEATING]
        for stage in stages:
            # On a busy machine a second may pass without a heartbeat.
            stage.profile = replace(stage.profile, stall_after_s=4)
        lanes, since_ms = [stage.start(progress_every_ms=1_000) for stage in stages], SystemClock().now_ms()
        assert until(lambda: SystemClock().now_ms() > since_ms + 6_000)
        for stage in stages:
            aws.stop(stage.stream_id)
        assert {
            name: lane.last_report.progress.ended_by for name, lane in zip(BEATING, lanes, strict=True)
        } == dict.fromkeys(BEATING, "stopped")
        assert [stage.stored() for stage in stages] == [[]] * len(stages)


def test_only_profiles_that_need_it_back_off_from_outages() -> None:
    """Profiles whose provider requires it have a back-off for HTTP failures; the others are retried at once."""
    paces = {name: pace.start_s for name in BEHAVIOURS if (pace := shipped(name).pace("http")) is not None}
    assert paces == {"x-filtered": 5, "companies-house": 5, "oanda": 1}


def test_a_change_of_a_cluster_is_known_by_its_revision() -> None:
    """CouchDB's change is keyed by document and revision, because another connection may number it differently."""
    lines = [
        '{"seq": "2-aaa", "id": "d", "changes": [{"rev": "1-x"}]}',
        '{"seq": "2-bbb", "id": "d", "changes": [{"rev": "1-x"}]}',
        '{"seq": "3-bbb", "id": "d", "changes": [{"rev": "2-x"}], "deleted": true}',
    ]
    events = [shipped("couchdb").to_event(Frame(line), 0) for line in lines]
    assert [event.key for event in events] == ['["d","1-x"]', '["d","1-x"]', '["d","2-x"]']
    assert [event.cursor for event in events] == ["2-aaa", "2-bbb", "3-bbb"]


def test_a_stream_with_random_ids_resumes_from_an_earlier_instant() -> None:
    """Alpaca's ids end at random, so the request resumes from an instant two minutes before the newest event."""
    profile = shipped("alpaca")
    event = profile.to_event(Frame('{"event_id": "01HCMKNJK1Y0R7VF6Q6CAC3SH7", "at": "2026-01-01T12:00:00Z"}'), 0)
    request = request_of(profile, "alpaca:trades", event.cursor, dict.fromkeys(profile.secrets, "s3cret"))
    assert request.address == "https://broker-api.alpaca.markets/v2/events/trades?since=2026-01-01T11%3A58%3A00Z"
    assert event.key == "01HCMKNJK1Y0R7VF6Q6CAC3SH7"


def test_a_provider_that_forbids_two_refuses_the_second(aws: Aws) -> None:
    """A provider that forbids two connections answers 429 to the second; the profile backs off for a minute."""
    with played(aws, "x-filtered", **BUSY) as stage:
        first = stage.start()
        assert until(lambda: len(stage.stored()) >= 1)
        before_ms = SystemClock().now_ms()
        assert replace(stage, stream_id="x-filtered:other").connect().outcome.error == "StreamThrottled"
        after_ms = SystemClock().now_ms()
        assert before_ms <= aws.store().read("x-filtered:other").rest.until_ms - 60_000 <= after_ms
        assert stage.most() == 1
        aws.stop(stage.stream_id)
        assert first.last_report.outcome.status == "stopped"


def test_a_session_that_another_program_takes_is_a_drop(aws: Aws) -> None:
    """If another program takes the session, the connection is notified in band and ends as dropped."""
    with played(aws, "oanda", **BUSY) as stage:
        older = stage.start()
        assert until(lambda: len(stage.stored()) >= 1)
        values = dict.fromkeys(stage.profile.secrets, "s3cret")
        request = request_of(stage.profile, stage.stream_id, None, values)
        with urllib3.request("GET", request.address, headers={"Authorization": "x"}, preload_content=False) as answer:
            assert answer.status == 200
            progress = older.last_report.progress
            assert (older.last_report.outcome.error, progress.ended_by) == ("StreamDropped", "disconnected_by_upstream")


@pytest.mark.parametrize("name", ["alpaca", *NUMBERED])
def test_an_announced_loss_is_a_gap_and_no_event(aws: Aws, name: str) -> None:
    """A loss that the provider announces, or that its numbers show, is a gap; the events around it are stored."""
    with played(aws, name, interval_ms=20, loses_every=5) as stage:
        reader = stage.start()
        assert until(lambda: len(aws.losses(stage.stream_id)) >= 2)
        aws.stop(stage.stream_id)
        assert reader.last_report.outcome.status == "stopped"
    numbers = stage.stored()
    assert numbers == [number for number in range(numbers[0], numbers[-1] + 1) if number % 5]
    assert set(aws.losses(stage.stream_id)) == {"announced_by_upstream"}


@pytest.mark.parametrize(("name", "changes"), TOO_OLD)
def test_a_cursor_that_is_too_old_is_a_gap_and_is_dropped(aws: Aws, name: str, changes: dict[str, int]) -> None:
    """A cursor that the provider refuses as too old is a lost gap; the next connection begins without it."""
    aws.put_control(IDS[name], "lease", **control_record.cursor_attributes("3", 0, 1))
    with played(aws, name, **BUSY, **changes) as stage:
        report = stage.connect()
        assert (report.outcome.error, report.progress.ended_by) == ("StreamDropped", "cursor_expired")
        assert (stage.stored(), aws.losses(stage.stream_id)) == ([], ["cursor_expired"])
        again = stage.start()
        assert until(stage.stored)
        aws.stop(stage.stream_id)
        assert not again.last_report.progress.resumed


def test_a_hub_that_lost_the_id_is_a_lost_gap(aws: Aws) -> None:
    """If the hub's answer has another Last-Event-ID than the request, the events between are a lost gap."""
    aws.put_control("mercure:one", "lease", **control_record.cursor_attributes("urn:played:3", 0, 1))
    with played(aws, "mercure", **BUSY | {"interval_ms": 1_000}) as stage:
        reader = stage.start()
        assert until(stage.stored)
        aws.stop(stage.stream_id)
        assert not reader.last_report.progress.resumed
    gaps = [item for key, item in aws.items(CONTROL, stage.stream_id).items() if key.startswith("gap#")]
    assert [(gap["cause"], gap["from_ms"], gap["state"]) for gap in gaps] == [("cursor_unknown", 1, "lost")]


@pytest.mark.parametrize(("away_ms", "closed"), [(240_000, True), (360_000, False)])
def test_an_interruption_longer_than_the_backfill_is_a_gap(aws: Aws, away_ms: int, closed: bool) -> None:
    """The provider's backfill covers the last five minutes; a longer interruption leaves an open gap."""
    left_ms = SystemClock().now_ms() - away_ms
    with played(aws, "x-filtered", **BUSY) as stage:
        store = aws.store()
        aws.put_control(stage.stream_id, "lease", **control_record.cursor_attributes("3", 1, left_ms))
        before = Progress(1, left_ms - 9, left_ms - 8, left_ms, left_ms, "ended_by_upstream")
        save_connection(store, stage.stream_id, before, lane="A", execution="", request_id="r")
        aws.put_control(stage.stream_id, "lease", fence={"N": "1"})
        reader = stage.start()
        assert until(lambda: "gap#000000000002" in aws.items(CONTROL, stage.stream_id))
        aws.stop(stage.stream_id)
        assert reader.last_report.progress.resumed
    # The reader was stopped after a moment, so it is not known whether all of the backfill had come.
    items = aws.items(CONTROL, stage.stream_id)
    gap = items["gap#000000000002"]
    assert (gap["cause"], gap["state"]) == ("ended_by_upstream", "open")
    last: dict[str, Any] = {
        name: items["connection#000000000002"].get(name) for name in ("opened_ms", "reach_ms", "since_ms", "live_ms")
    }
    stayed_ms = last["opened_ms"] + 400_000
    first = Record(1, left_ms - 8, left_ms, left_ms, "ended_by_upstream", resumed=False)
    stayed = Record(2, seen_ms=stayed_ms, closed_ms=None, ended_by="", resumed=True, **last)
    assert [one.state for one in find_gaps([first, stayed], stayed_ms, 1)] == ["delivered" if closed else "open"]


@pytest.mark.parametrize(
    ("name", "changes", "stored"), [("completions", {"event": 'data: {"word": "very"}\n\n'}, 6), ("responses", {}, 5)]
)
def test_a_complete_answer_ends_the_stream(aws: Aws, name: str, changes: dict[str, str], stored: int) -> None:
    """A stream ends with [DONE], which is stored too, or with an event's name; equal words of a completion count."""
    with played(aws, name, interval_ms=10, length=5, **changes) as stage:
        report = stage.connect()
    assert (report.outcome.status, report.progress.ended_by, report.progress.stored) == ("ended", "ended", stored)


# Which providers have each of these tested above, by the column of the table in docs/profiles.md.
TESTED = {
    "resume": set(RESUMED),
    "heartbeat": set(BEATING),
    # etcd's losses are tested with etcd itself, in tests/handlers/test_etcd.py.
    "loss": {"alpaca", "etcd", "mercure", "x-filtered", *NUMBERED} | {name for name, _ in TOO_OLD},
    "end": set(BEHAVIOURS),
}


def test_the_page_of_providers_matches_the_tests() -> None:
    """The page has a row for each provider; each cell has its behaviour, or "n/a:" and why there is nothing to test."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    (head,) = [at for at, line in enumerate(lines) if line.startswith("| provider |")]
    columns = [cell.strip() for cell in lines[head].split("|")[2:-1]]
    assert columns == list(TESTED)
    rows = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in lines[head + 1 :]}
    assert sorted(rows) == sorted(BEHAVIOURS)
    for name, cells in rows.items():
        assert all(len(cell) > len("n/a: ") for cell in cells)
        tested = {column for column, cell in zip(columns, cells, strict=True) if not cell.startswith("n/a: ")}
        assert (name, tested) == (name, {column for column, names in TESTED.items() if name in names})
