"""A silent upstream, in virtual time: how the record reports the silence, over handovers and in groups."""

from typing import Any

import pytest

from handlers.connection.effects import Progress
from handlers.connection.epochs import NO_EPOCH, Epoch
from handlers.connection.inputs import Chunk, Opened
from handlers.connection.liveness import FORGOTTEN_MS, LEAST_MS, Silence, decay_pause
from handlers.store import ledger_records, typed_values
from handlers.store.leases import quiet_alert, silence_of
from tests.handlers.aws import Client
from tests.handlers.scripted import Functions, Script
from tests.handlers.store.grouped import NOW_MS, STREAM, claim, client, store_of

__all__ = ["client"]
FOR_MS = 896_000  # a function's time without its margin


def sends(*after_s: int) -> Script:
    """Send an answer at once, and an event after each of so many seconds."""
    return [(0, Opened(200)), *((1_000 * each, Chunk(f"data: {each}\n\n".encode())) for each in after_s)]


class World(Functions):
    """Functions of a stream in turn; `told` has the reported words by instant."""

    origin_ms = 1_700_000_000_000
    lease_every_ms = 3_000

    def __init__(self, scripts: list[Script], *at_s: float, **fields: Any) -> None:
        self.told: dict[float, str] = {}
        actions = [(round(self.origin_ms + 1_000 * each), lambda each=each: self.check_at(each)) for each in at_s]
        super().__init__(lambda: scripts[len(self.opened)], actions)
        for _ in scripts:
            self.start_function(key="each", **fields)

    def check_at(self, at_s: float) -> None:
        self.told[at_s] = quiet_alert(self.lease_item, self.now_ms)


def test_a_stream_is_quiet_after_the_profiles_time_without_an_event() -> None:
    """A stream is quiet after `expect_every_s` without a new event, also over a handover, until the next event."""
    world = World([sends(10, 400, 880), sends(100, 130)], 469, 470, 500, 902, 980, 990, 1_000, 1_100, expect_every_s=70)
    silent_s = {469: 0, 470: 70, 500: 100, 902: 0, 980: 100, 990: 110, 1_000: 0, 1_100: 74}
    quiet = "quiet: nothing new for {} s, and one is expected every 70 s"
    assert world.told == {at_s: quiet.format(for_s) if for_s else "" for at_s, for_s in silent_s.items()}


def test_a_pause_of_twice_the_longest_seen_is_not_usual() -> None:
    """With "usual", a pause of twice the longest pause so far is quiet; two minutes are never too long."""
    world = World([sends(0, 300, 400), sends()], 996, 997, expect_every_s="usual")
    assert silence_of(world.lease_item) == Silence(world.origin_ms + 400_000, decay_pause(300_000, FOR_MS), 0)
    assert (world.told[996], world.told[997]) == ("", "quiet: nothing new for 597 s, and that is not usual")
    assert Silence(1, 1_000, 0).limit_ms() == LEAST_MS
    assert World([sends(0, 300, 400), sends()], 1_700).told == {1_700: ""}


def test_an_outage_does_not_count_as_a_pause() -> None:
    """The pause before the first event after an outage does not count: nobody was connected."""
    world = World([sends(0, 10)])
    world.now_ms += 600_000
    world.opened.clear()
    world._play = lambda _stream: sends(5, 20)
    world.start_function(key="each")
    assert silence_of(world.lease_item).longest_ms == 15_000


def test_a_long_pause_is_forgotten_bit_by_bit() -> None:
    """A remembered pause fades linearly: it loses half of its length in a day, and the rest in another."""
    assert [decay_pause(1_000, since_ms) for since_ms in (0, FORGOTTEN_MS // 2, FORGOTTEN_MS)] == [1_000, 500, 0]
    assert (decay_pause(None, 1), Silence(1, None, 0).limit_ms(), Silence(1, 5, None).limit_ms()) == (
        None,
        None,
        LEAST_MS,
    )


def shown(event_ms: int, **more: Any) -> dict[str, Any]:
    """Return the attributes that a heartbeat shows for a stream that expects an event every minute."""
    progress = Progress(1, NOW_MS, NOW_MS, NOW_MS, event_ms=event_ms, expect_ms=60_000)
    item = ledger_records.connection_item(progress, lane="A", execution="", request_id="r1")
    return {"live": {"M": ledger_records.without_defaults(item)}} | more


def test_a_groups_heartbeat_records_when_an_expected_event_came(client: Client) -> None:
    """A group's heartbeat records the time of the last event at most twice within the expected time.

    So the watch waits for half of that time more, before it reports the stream as quiet.
    """
    store = store_of(client)
    fence = claim(store)
    store.mark_connected(STREAM, fence, NOW_MS, request_id="r1", shown=shown(NOW_MS))

    def told() -> int | None:
        key = {"PK": {"S": STREAM}, "SK": {"S": "lease"}}
        item = client.get_item(TableName="control", Key=key, ConsistentRead=True)["Item"]
        return silence_of(item).event_ms

    for after_ms, expected in ((29_999, 0), (30_000, 30_000), (59_000, 30_000), (60_000, 60_000)):
        store.heartbeat(STREAM, fence, NOW_MS, shown(NOW_MS + after_ms))
        assert told() == NOW_MS + expected
    item = {"group": {"S": "#1"}, "started_at": {"S": typed_values.instant_text(NOW_MS)}} | shown(NOW_MS)
    assert [quiet_alert(item, NOW_MS + after_ms) != "" for after_ms in (89_999, 90_000)] == [False, True]


UNWELL = [(89_999, NO_EPOCH, 0), (90_000, NO_EPOCH, 1), (0, Epoch(1, 5, NOW_MS), 1)]


@pytest.mark.parametrize(("after_ms", "begun", "unwell"), UNWELL)
def test_a_group_counts_its_silent_and_restarted_streams(
    client: Client, after_ms: int, begun: Epoch, unwell: int
) -> None:
    """A group's function counts the streams that are silent or whose ids have started over."""
    store = store_of(client, NOW_MS + after_ms)
    store.mark_connected(STREAM, claim(store), NOW_MS, request_id="r1", shown=shown(NOW_MS))
    if begun != NO_EPOCH:
        store.begin_epoch(STREAM, NO_EPOCH, begun)
    assert store.unwell_count() == unwell
