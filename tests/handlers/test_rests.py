"""The back-off between tries, in virtual time: the real decisions and the real store, on tables in memory."""

from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import pytest

from handlers.connection.backoff import TRY_MS, Backoff
from handlers.connection.effects import Claim, Write
from handlers.connection.inputs import Chunk, Claimed, Closed, Opened
from handlers.framing.events import StreamEvent
from handlers.store.event_items import partition_key
from tests.handlers import scripted
from tests.handlers.scripted import Script

BACKOFF = {"network": {"start_s": 1}, "http": {"start_s": 2, "factor": 2}, "throttled": {"start_s": 4}}


class Functions(scripted.Functions):
    """The functions of a profile with a pace for each kind of failure."""

    default_fields: ClassVar[dict[str, Any]] = {"backoff": BACKOFF}


def refused(http_status: int, retry_after_s: int | None = None) -> Script:
    """Return a connection that is refused."""
    headers = {} if retry_after_s is None else {"retry-after": str(retry_after_s)}
    return [(0, Opened(http_status, headers))]


LIVED: Script = [(0, Opened(200)), (60_000, Closed("ended_by_upstream"))]


def test_a_back_off_holds_for_the_next_function() -> None:
    """A function that starts during a back-off waits for the rest of the upstream's Retry-After, to the millisecond."""
    functions = Functions(lambda: refused(429, 9))
    for _ in range(3):
        functions.start_function()
    assert functions.opened_at_ms == [0, 9_000, 18_000]


def test_a_back_off_longer_than_the_function_is_left_to_the_next() -> None:
    """If the back-off outlasts a function, the function waits until its end, opens nothing, and raises that error."""
    functions = Functions(lambda: refused(429, 3_000))
    functions.start_function()
    outcome = functions.start_function().outcome
    assert (outcome.error, functions.now_ms) == ("StreamThrottled", 892_000)
    assert outcome.message == "the upstream's back-off lasts 2108 s more"
    assert functions.opened_at_ms == [0]


def concurrent_functions(functions: Functions, play: Script) -> Functions:
    """Return functions of the same stream that begin at the same instant."""
    others = Functions(lambda: play)
    others.store, others.now_ms, others.call_count = functions.store, functions.now_ms, 8
    return others


def test_of_two_functions_that_back_off_together_one_tries() -> None:
    """If two functions back off together, one tries; the other reads that, and waits for its result."""
    tried_ms: list[int] = []

    def tries() -> None:
        other = concurrent_functions(functions, refused(503, 600))
        other.start_function(reconnect_tries=0)
        tried_ms.extend(other.opened_at_ms)

    functions = Functions(lambda: LIVED, [(299, tries)])
    functions.store.change_rest("demo", Backoff(), Backoff("http", 1, 300), "A/r0")
    functions.start_function(reconnect_tries=0)
    assert (tried_ms, functions.opened_at_ms) == ([300], [600_300])


def test_a_function_beside_an_answered_try_connects() -> None:
    """A try whose connection is answered ends at once; a function that waits beside it reads that and connects."""
    left: list[Backoff] = []
    tries = Functions(lambda: [(1_000, Opened(200))], [(1_101, lambda: left.append(tries.store.read("demo").rest))])
    tries.store.change_rest("demo", Backoff(), Backoff("http", 1, 100), "A/r0")
    tries.start_function()
    assert left == [Backoff("http", 1, 1_100)]
    rests = Functions(lambda: LIVED, [(1_200, lambda: rests.store.change_rest("demo", held, left[0], "B/r0"))])
    held = replace(left[0], until_ms=60_000, tried_ms=100)
    rests.store.change_rest("demo", Backoff(), held, "B/r0")
    rests.start_function()
    assert rests.opened_at_ms == [2_000]


def test_failures_in_a_row_lengthen_the_back_off() -> None:
    """Failures in a row lengthen the back-off, whichever function meets them."""
    functions = Functions(lambda: refused(503))
    for _ in range(4):
        functions.start_function()
    assert functions.opened_at_ms == [0, 2_000, 6_000, 14_000]


def test_a_try_is_taken_once() -> None:
    """Only the first claim with the current back-off takes the try; repeating its request is accepted as its own."""
    store = Functions(lambda: LIVED).store
    store.change_rest("demo", Backoff(), Backoff("http", 3, 1_000), "A/r0")
    who: dict[str, Any] = {"execution": "", "now_ms": 1_500, "rest_until_ms": 1_000, "try_until_ms": 9_000}
    replies = [store.claim("demo", holder=holder, **who) for holder in ("A/r1", "A/r1", "B/r2")]
    assert [reply.is_done for reply in replies] == [True, True, False]
    assert {(reply.record.lease.fence, reply.record.rest) for reply in replies} == {
        (1, Backoff("http", 3, 9_000, tried_ms=1_500))
    }


def test_a_back_off_is_replaced_once() -> None:
    """A back-off is replaced only if it is unchanged since it was read; a repeated request is accepted as its own."""
    store = Functions(lambda: LIVED).store
    nothing, read, taken = Backoff(), Backoff("http", 3, 1_000), Backoff("http", 3, 9_000)
    assert [store.change_rest("demo", nothing, read, "A/r1") for _ in range(2)] == [True, True]
    assert [store.change_rest("demo", read, taken, holder) for holder in ("A/r1", "A/r1", "B/r2")] == [
        True,
        True,
        False,
    ]
    assert store.read("demo").rest == taken
    changes = [(nothing, read, "B/r2"), (taken, nothing, "B/r2"), (nothing, read, "A/r1")]
    assert [store.change_rest("demo", *one) for one in changes] == [False, True, True]


def test_a_try_is_written_down_as_one_until_it_has_ended() -> None:
    """While a function tries, the record marks the try: others wait for it, but it is no back-off of a failure."""
    rests: list[Backoff] = []

    def answer() -> Script:
        rests.append(functions.store.read("demo").rest)
        return refused(503)

    functions = Functions(answer)
    functions.start_function()
    functions.start_function()
    took_ms = functions.opened_at_ms[1]
    held, after = rests[1], functions.store.read("demo").rest
    assert (rests[0], held) == (Backoff(), Backoff("http", 1, held.until_ms, tried_ms=took_ms))
    assert held.until_ms == took_ms + 10_000 + TRY_MS  # the times for connecting and for leaving
    assert after == Backoff("http", 2, took_ms + 4_000)


@pytest.mark.parametrize(
    ("ended", "theirs", "after"),
    [
        (refused(503), Backoff("http", 1, 500), Backoff("http", 2, 4_000)),
        (refused(503), Backoff("throttled", 4, 90_000), Backoff("http", 1, 90_000)),
        (LIVED, Backoff("throttled", 4, 90_000), Backoff("throttled", 4, 90_000)),
        # Another function tries by now: its mark is no back-off until it has ended.
        (refused(503), Backoff("http", 1, 90_000, tried_ms=1), Backoff("http", 2, 90_000, tried_ms=1)),
        (refused(503), Backoff("http", 1, 500, tried_ms=1), Backoff("http", 2, 4_000)),
    ],
)
def test_a_failure_beside_another_is_added_to_it(ended: Script, theirs: Backoff, after: Backoff) -> None:
    """A failure beside another of its kind counts as one more, and the longer back-off holds.

    A connection that lived does not end the back-off of another.
    """

    def meanwhile() -> Script:
        functions.store.change_rest("demo", functions.store.read("demo").rest, theirs, "B/r2")
        return ended

    functions = Functions(meanwhile)
    functions.start_function()
    assert functions.store.read("demo").rest == after


def test_a_row_of_failures_ends_with_a_connection_that_lives() -> None:
    """A connection that lives ends a row of failures: a failure at its handover is the first of a new row."""
    rows: list[Backoff] = []

    def hand_over() -> None:
        rows.append(functions.store.read("demo").rest)
        concurrent_functions(functions, refused(503)).start_function()
        rows.append(functions.store.read("demo").rest)

    plays: list[Script] = [refused(503), refused(503), list(LIVED)]
    functions = Functions(lambda: plays.pop(0), [(20_000, hand_over)])
    for _ in range(3):
        functions.start_function()
    assert rows == [Backoff("", 0, 6_000), Backoff("http", 1, 22_000)]
    assert functions.store.read("demo").rest == Backoff("http", 1, 22_000)


def test_a_connection_that_is_answered_and_closed_at_once_ends_no_row() -> None:
    """A connection that closes within its first second, before its first heartbeat, does not end a row of failures."""
    plays: list[Script] = [refused(503), [(0, Opened(200)), (999, Closed("reset"))], refused(503)]
    functions = Functions(lambda: plays.pop(0))
    rows = []
    for _ in range(3):
        functions.start_function(reconnect_tries=0)
        rows.append(functions.store.read("demo").rest.failures)
    assert rows == [1, 1, 1]


def test_a_connection_that_made_room_before_it_opened_is_no_failure() -> None:
    """A connection that makes room for its successor before it opens is no failure: no back-off is recorded."""
    functions = Functions(lambda: [(0, Closed("refused"))])
    functions.start_function()
    assert functions.store.read("demo").rest == Backoff("network", 1, 1_000)

    functions = Functions(list, [(300, lambda: functions.store.claim("demo", execution="", holder="A/r3"))])
    functions.store.claim("demo", execution="", holder="B/r0")
    functions.store.mark_connected("demo", 1, 10**15)
    report = functions.start_function(overlap="forbids")
    assert (report.progress.ended_by, functions.opened_at_ms) == ("claimed_by_successor", [])
    assert functions.store.read("demo").rest == Backoff()


@pytest.mark.parametrize(
    ("changed", "end"),
    [
        ({"stop": {"BOOL": True}}, "stopped"),
        ({"execution": {"S": "other"}}, "superseded"),
        ({"ending": {"S": "StreamEnded"}, "ended_at": {"S": "1970-01-01T00:00:01.000Z"}}, "superseded"),
        # Its execution has failed meanwhile: the function of a failed execution ends, that of a later one goes on.
        ({"ending": {"S": "Internal"}, "ended_at": {"S": "1970-01-01T00:00:10.500Z"}}, "superseded"),
        ({"ending": {"S": "Internal"}, "ended_at": {"S": "1969-12-31T23:59:59.999Z"}}, ""),
        ({"fence": {"N": "2"}, "connected": {"N": "2"}, "holder": {"S": "B/r9"}}, "StreamTakenOver"),
    ],
)
def test_the_claim_after_a_back_off_checks_the_record(changed: dict[str, Any], end: str) -> None:
    """The claim after a back-off checks the record itself, as no read comes between the last pause and the claim."""

    def change() -> None:
        key = {"PK": {"S": "demo"}, "SK": {"S": "lease"}}
        item = functions.tables.get_item(TableName="control", Key=key)["Item"]
        gone = ("execution",) if "ending" in changed else ()
        kept = {name: value for name, value in item.items() if name not in gone}
        functions.tables.put_item(TableName="control", Item=kept | changed)

    scripts: list[Script] = [asks(b"900"), [(0, Opened(204))]]
    functions = Functions(lambda: scripts.pop(0), [(10_450, change)])
    report = functions.run(functions.profile(backoff={}, reconnect_tries=1), functions.invocation(execution="mine"))
    assert (report.outcome.error or report.outcome.status) == (end or "ended")
    assert functions.opened_at_ms == ([0] if end else [0, 10_900])


# --- the reconnection time of an event stream -------------------------------------------------------------------------

REFUSED: Script = [(0, Closed("refused"))]


def asks(retry: bytes, until_ms: int = 10_000, end: str = "ended_by_upstream") -> Script:
    """Return a connection that requests a reconnection time in its first second."""
    return [(0, Opened(200)), (100, Chunk(b"retry: " + retry + b"\n\n")), (until_ms, Closed(end))]


def opened_at_ms(*scripts: Script, count: int = 2, **fields: Any) -> list[int]:
    """Return when `count` functions opened connections; each function starts when the one before ends."""
    left = list(scripts)
    functions = Functions(lambda: left.pop(0) if left else [(0, Opened(200))])
    functions.lease_every_ms = 20_000
    for _ in range(count):
        functions.start_function(**{"backoff": {}, **fields})
    return functions.opened_at_ms


@pytest.mark.parametrize("end", ["ended_by_upstream", "reset", "stalled", "truncated"])
def test_a_lost_connection_is_followed_by_another_after_the_reconnection_time(end: str) -> None:
    """After any lost connection, the next function or the same one reconnects after the reconnection time."""
    assert opened_at_ms(asks(b"5000", end=end), LIVED) == [0, 15_000]
    assert opened_at_ms(asks(b"5000", end=end), asks(b"5000"), LIVED, count=1, reconnect_tries=2)[:2] == [0, 15_000]


def test_a_reconnection_time_holds_for_each_try_in_an_outage() -> None:
    """In an outage each try waits for the last reconnection time, or for the profile's longer back-off."""
    assert opened_at_ms(asks(b"5000"), REFUSED, REFUSED, LIVED, count=4) == [0, 15_000, 20_000, 25_000]
    slow = {"network": {"start_s": 8}}
    assert opened_at_ms(asks(b"5000"), REFUSED, LIVED, count=3, backoff=slow) == [0, 15_000, 23_000]


def test_the_last_reconnection_time_counts() -> None:
    """The last reconnection time of any connection counts; 0 ends it, and a connection without one changes nothing."""
    three = opened_at_ms(asks(b"5000"), asks(b"2000"), LIVED, LIVED, count=4)
    assert three == [0, 15_000, 27_000, 27_000 + 62_000]
    assert opened_at_ms(asks(b"5000"), asks(b"0"), LIVED, count=3) == [0, 15_000, 25_000]


def test_the_profile_bounds_the_reconnection_time() -> None:
    """The profile bounds the reconnection time, by default to a minute, so that no server can silence a stream."""
    bounds: list[dict[str, Any]] = [{}, {"retry_max_s": 2}, {"retry_max_s": 0}]
    rests = [opened_at_ms(asks(b"86400000"), LIVED, **fields)[1] - 10_000 for fields in bounds]
    assert rests == [60_000, 2_000, 0]


def test_a_connection_that_dies_in_its_first_second_is_lost_as_well() -> None:
    """The reconnection time also holds if the connection closes within its first second."""
    assert opened_at_ms(asks(b"5000", until_ms=200), LIVED) == [0, 5_200]


@pytest.mark.parametrize("connected_ms", [8_100, 10_050])
def test_a_handover_is_no_reconnection(connected_ms: int) -> None:
    """A handover causes no back-off: the successor was connected before this connection ended, or evicted it."""
    functions = Functions(
        lambda: asks(b"5000"),
        [
            (8_000, lambda: functions.store.claim("demo", execution="", holder="B/r9")),
            (connected_ms, lambda: functions.store.mark_connected("demo", 2, 10**15)),
        ],
    )
    assert functions.start_function().outcome.error == "StreamTakenOver"
    assert functions.store.read("demo").rest == Backoff()


def test_a_connection_that_ends_at_its_deadline_leaves_no_back_off() -> None:
    """A connection that ends at its deadline was not lost, so it leaves no back-off, and the next connects at once."""
    functions = Functions(lambda: asks(b"5000", until_ms=10**7))
    functions.lease_every_ms = 20_000
    report = functions.start_function()
    assert (report.outcome.error, functions.store.read("demo").rest) == ("ConnectionExpired", Backoff())


@pytest.mark.parametrize(("lot", "asked_ms"), [(0, [0, 0, 0, 0]), (0.3, [0, 0, 30, 120]), (1, [0, 0, 100, 400])])
def test_a_function_reconnects_with_full_jitter(lot: float, asked_ms: list[int]) -> None:
    """A function reconnects at once after its first failure, then with full jitter, to spread functions in time."""
    functions = Functions(lambda: [(0, Closed("reset"))])
    functions.random_share = lot
    functions.start_function(reconnect_tries=3, backoff={})
    assert functions.opened_at_ms == asked_ms


def test_a_function_reconnects_only_with_three_margins_left() -> None:
    """A function reconnects only if three times its margin is left; otherwise it leaves that to the next function."""
    openings = []
    for after_ms in (887_999, 888_000):
        lived: Script = [(0, Opened(200)), (after_ms, Closed("reset"))]
        functions = Functions(partial(list, lived))
        functions.lease_every_ms = 20_000
        functions.start_function(reconnect_tries=3, backoff={})
        openings.append(len(functions.opened_at_ms))
    assert openings == [2, 1]


def test_the_first_claim_fixes_the_partitions() -> None:
    """A stream's first claim fixes its partitions; a later profile with another number writes to the same ones."""
    functions = Functions(lambda: LIVED)
    for number, partitions in ((1, 5), (2, 1)):
        requests = functions.requests(functions.profile(partitions=partitions), functions.invocation())
        event = StreamEvent(f"k{number}", "x", None, None, None, 0)
        assert [isinstance(request(), Claimed) for request in requests.requests_of(Claim())] == [True]
        for write in requests.requests_of(Write(number, 0, (event,))):
            write()
        key = {"PK": {"S": partition_key("demo", event.key, 5)}, "SK": {"S": event.key}}
        assert "Item" in functions.tables.get_item(TableName="events", Key=key)
