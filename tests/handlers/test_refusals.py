"""Refusals that may pass, in virtual time: the real decisions and the real store, on tables in memory."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.backoff import (
    JITTER,
    NO_BACKOFF,
    REFUSAL_PACE,
    Backoff,
    Pace,
    Refusal,
    backoff_after_refusal,
    refused_since_ms,
)
from handlers.connection.effects import Progress
from handlers.connection.inputs import Closed, Opened
from handlers.connection.lease import Lease
from handlers.store import ledger_records, typed_values
from tests.examples import one_in
from tests.handlers.scripted import Functions, Script

LIVED: Script = [(0, Opened(200)), (60_000, Closed("ended_by_upstream"))]
ANSWERED: Script = [(0, Opened(200)), (10, Closed("ended_by_upstream"))]
ORIGIN_MS = 10**6
DROPPED, REJECTED = "StreamDropped", "StreamRejected"


def answered(status: int, **headers: str) -> Script:
    """Return a connection that gets this answer at once."""
    return [(0, Opened(status, {name.replace("_", "-"): value for name, value in headers.items()}))]


class Machine(Functions):
    """Calls functions in turn, as the machine does after a drop: each at once."""

    random_share = 0
    origin_ms = ORIGIN_MS

    def act_at(self, at_ms: int, act: Callable[[], object]) -> None:
        """Let another actor act at that instant."""
        self._actions.append((at_ms, act))

    def until_rejected(self, most: int = 40, **fields: Any) -> list[str]:
        """Return the errors of functions in both lanes in turn, until one of them is not StreamDropped."""
        errors: list[str] = []
        while len(errors) < most and (not errors or errors[-1] == DROPPED):
            errors.append(self.start_function("AB"[len(errors) % 2], **fields).outcome.error)
        return errors


REFUSALS: dict[str, Script] = {
    **{str(status): answered(status) for status in (101, 302, 400, 401, 402, 403, 404, 405, 406, 407, 410, 451)},
    "a page": answered(200, content_type="text/html"),
    "another framing": answered(200, content_type="application/x-ndjson"),
    "an unknown coding": answered(200, content_encoding="br"),
    "a redirect, an address or a secret that cannot be used": [(0, Closed("rejected", "it cannot be used"))],
}


@pytest.mark.parametrize(
    ("overlap", "what"), one_in(4, itertools.product(["evicts", "tolerates", "forbids"], REFUSALS))
)
def test_a_refusal_is_final_after_the_profiles_time_and_no_sooner(what: str, overlap: str) -> None:
    """Both lanes retry a refusal at growing intervals, the last time after 300 s, when the stream is rejected once."""
    machine = Machine(lambda: REFUSALS[what])
    errors = machine.until_rejected(overlap=overlap)
    assert machine.opened_at_ms == [0, 1_000, 3_000, 7_000, 15_000, *range(31_000, 300_000, 30_000), 300_000]
    assert errors == [DROPPED] * 14 + [REJECTED]


def test_a_page_for_a_minute_does_not_reject_the_stream() -> None:
    """If the upstream sends a page for a minute and then the stream, it is read, and the row of refusals ends."""
    page = REFUSALS["a page"]
    machine = Machine(lambda: page if machine.now_ms < ORIGIN_MS + 60_000 else LIVED)
    machine.lease_every_ms = 20_000
    assert machine.until_rejected(12, reject_after=90) == [DROPPED] * 12
    assert machine.store.read("demo").rest.refused_since_ms == 0


def test_zero_makes_a_refusal_final_at_once() -> None:
    """With `reject_after = 0`, or for a status that the profile calls rejected, the first refusal is final."""
    machine = Machine(lambda: answered(403))
    report = machine.start_function(reject_after=0)
    assert report.outcome.message == "the upstream answered 403: a retry cannot help"
    assert (machine.store.read("demo").rest, machine.opened_at_ms) == (NO_BACKOFF, [0])
    assert Machine(lambda: answered(403)).until_rejected(statuses={"403": "rejected"}) == [REJECTED]


def test_the_message_of_a_refusal_names_its_time() -> None:
    """The message of a refusal names the time until it is final, and the final message how long it lasted."""
    machine = Machine(lambda: answered(403))
    said = [machine.start_function(reject_after="3s").outcome for _ in range(3)]
    assert [(one.message, one.http_status) for one in said] == [
        ("the upstream answered 403: final if it goes on for 3 s", 403),
        ("the upstream answered 403: final if it goes on for 2 s", 403),
        ("the upstream answered 403 for 3 s: a retry cannot help", 403),
    ]


@pytest.mark.parametrize("other", [LIVED, ANSWERED, answered(503), answered(429), [(0, Closed("unreachable"))]])
def test_anything_but_a_refusal_begins_the_row_anew(other: Script) -> None:
    """Only refusals in a row count: an answer, another kind of failure, or no answer begins the row anew."""
    scripts = [answered(403), answered(403), other]
    machine = Machine(lambda: scripts.pop(0) if scripts else answered(403))
    for _ in range(3):
        machine.start_function(reject_after=60)
    begun_ms = machine.now_ms
    assert machine.until_rejected(reject_after=60)[-1] == REJECTED
    assert machine.now_ms - begun_ms >= 60_000


def test_a_post_begins_the_row_anew() -> None:
    """A POST begins the row of refusals anew, because its sender may have removed the cause."""
    machine = Machine(lambda: answered(403))
    assert machine.until_rejected(reject_after=20)[-1] == REJECTED
    machine.wait_until(ORIGIN_MS + 100_000)
    machine.tables.update_item(
        TableName="control",
        Key=typed_values.item_key("demo", "lease"),
        UpdateExpression="SET started_at = :at",
        ExpressionAttributeValues={":at": {"S": "1970-01-01T00:18:20Z"}},
    )
    machine.opened.clear()
    assert machine.until_rejected(reject_after=20)[-1] == REJECTED
    assert machine.opened_at_ms == [100_000, 101_000, 103_000, 107_000, 115_000, 120_000]


LEAST_MS: list[tuple[str, dict[str, Any], int]] = [
    ("403", {"reject_after": 20}, 220_000),
    ("a page", {"reject_after": 20}, 220_000),
    ("a page", {"reject_after": 0}, 200_000),
    ("403", {"statuses": {"403": "rejected"}}, 200_000),
]


@pytest.mark.parametrize(("least", "overlap"), one_in(3, itertools.product(LEAST_MS, ["evicts", "tolerates"])))
def test_no_refusal_is_final_while_another_connection_lives(
    least: tuple[str, dict[str, Any], int], overlap: str
) -> None:
    """While another connection receives events, the stream is not rejected; after its end a refusal has its full time.

    This holds even if the profile calls the refusal final at once, and retries still back off.
    """
    what, fields, least_ms = least
    machine = Machine(lambda: REFUSALS[what])
    machine.store.claim("demo", execution="", holder="A/r0")
    machine.store.mark_connected("demo", 1, ORIGIN_MS + 20_000)
    open_ms = ORIGIN_MS - 5_000
    for seen_ms in range(ORIGIN_MS, ORIGIN_MS + 200_001, 1_000):
        record = Progress(1, open_ms, open_ms, seen_ms, seen_ms if seen_ms == ORIGIN_MS + 200_000 else None)
        row = ledger_records.connection_item(record, lane="A", execution="", request_id="")
        shown = {"live": {"M": ledger_records.without_defaults(row)}}
        machine.act_at(seen_ms, partial(machine.store.heartbeat, "demo", 1, seen_ms + 20_000, shown))
    errors = machine.until_rejected(overlap=overlap, **fields)
    assert (errors[-1], len(errors) < 20) == (REJECTED, True)
    assert least_ms <= machine.opened_at_ms[-1] < least_ms + 50_000


def test_retry_after_is_the_minimum_between_refusals() -> None:
    """The upstream's Retry-After is the minimum back-off, even if the refusal would be final before."""
    machine = Machine(lambda: answered(403, retry_after="40"))
    assert machine.until_rejected(reject_after=60) == [DROPPED, DROPPED, REJECTED]
    assert machine.opened_at_ms == [0, 40_000, 80_000]


def test_the_profile_may_set_the_back_off_of_refusals() -> None:
    """The profile's `backoff.refused` replaces the back-off of refusals."""
    machine = Machine(lambda: answered(403))
    machine.until_rejected(reject_after=20, backoff={"refused": {"start_s": 8}})
    assert machine.opened_at_ms == [0, 8_000, 16_000, 20_000]


def test_a_function_that_reconnects_backs_off_from_refusals_too() -> None:
    """A function that reconnects by itself backs off as long, and ends with the same error."""
    machine = Machine(lambda: answered(404))
    assert machine.start_function(reject_after=7, reconnect_tries=20).outcome.error == REJECTED
    assert machine.opened_at_ms == [0, 1_000, 3_000, 7_000]


def test_a_function_that_backs_off_beside_a_rejection_leaves() -> None:
    """A function that backs off while the other lane is rejected leaves, so the rejection counts once."""

    def rejects() -> None:
        ended = {"ending": {"S": REJECTED}, "ended_at": {"S": "1970-01-01T00:16:45Z"}}
        machine.tables.put_item(TableName="control", Item=typed_values.item_key("demo", "lease") | ended)

    machine = Machine(lambda: answered(403), [(ORIGIN_MS + 5_000, rejects)])
    machine.store.change_rest("demo", NO_BACKOFF, Backoff("refused", 3, ORIGIN_MS + 9_000, refused_since_ms=1), "A/r0")
    outcome = machine.start_function("B").outcome
    assert ((outcome.error, outcome.status), machine.opened_at_ms, machine.now_ms - ORIGIN_MS) == (
        ("", "superseded"),
        [],
        5_000,
    )


def test_a_rejection_leaves_a_back_off_for_the_other_lane() -> None:
    """After a rejection the record has a back-off of 3 s, so that the other lane reads the lease and leaves."""
    machine = Machine(lambda: answered(403))
    machine.until_rejected(reject_after=3)
    assert machine.store.read("demo").rest.until_ms == machine.now_ms + 3_000


instants = st.integers(1, 10**6)


@given(instants, instants, instants, st.none() | instants)
def test_a_row_is_never_longer_than_the_facts(
    first_ms: int, started_ms: int, now_ms: int, connected_ms: int | None
) -> None:
    """A row of refusals begins with the first, but not before a POST or the end of the last connection."""
    before, lease = Backoff("refused", 3, 5, refused_since_ms=first_ms), Lease(started_at_ms=started_ms)
    is_row = first_ms >= started_ms
    expected = min(now_ms, max(first_ms, connected_ms or 0)) if is_row else now_ms
    assert refused_since_ms(before, lease, connected_ms, now_ms) == expected
    assert refused_since_ms(NO_BACKOFF, lease, connected_ms, now_ms) == now_ms


@given(instants, instants, instants, st.integers(0, 10**6), st.floats(0, 1), st.integers(0, 40))
def test_a_back_off_is_its_pace_with_jitter_and_ends_with_the_row(
    first_ms: int, moved_ms: int, later_ms: int, limit_ms: int, jitter: float, failures: int
) -> None:
    """A back-off lasts from the pace to half as much more; the last ends when the next refusal is final.

    The same holds if another connection has ended meanwhile, and the row begins with its end. If the row is long enough
    and another connection is still open, only the pace counts.
    """
    since = first_ms + moved_ms
    now_ms = since + later_ms
    before = Backoff("refused", failures, 0, refused_since_ms=first_ms)
    after = backoff_after_refusal(before, Refusal(since, limit_ms), now_ms, REFUSAL_PACE, jitter, None)
    least_ms = REFUSAL_PACE.backoff_ms(failures + 1)
    left_ms = since + limit_ms - now_ms if since + limit_ms > now_ms else 10**9
    assert min(least_ms, left_ms) <= after.until_ms - now_ms <= min(least_ms * (1 + JITTER) + 1, left_ms)
    assert (after.failures, after.refused_since_ms) == (failures + 1, since)
    assert after.final_ms == since + limit_ms


def test_refusals_of_the_other_lane_count_in_the_row() -> None:
    """If another lane has recorded refusals meanwhile, the row with the later beginning counts."""
    theirs = Backoff("refused", 4, 9_000, refused_since_ms=7_000)
    after = backoff_after_refusal(theirs, Refusal(5_000, 60_000), 8_000, Pace(2), 0, None)
    assert after == Backoff("refused", 5, 10_000, refused_since_ms=7_000, final_ms=67_000)
    # Failures of another kind do not count in the row, and the upstream's reconnection time holds.
    other = backoff_after_refusal(Backoff("http", 4, 9_000, 3_000), Refusal(8_000, 60_000), 8_000, Pace(2, 1), 0, None)
    assert other == Backoff("refused", 1, 11_000, 3_000, refused_since_ms=8_000, final_ms=68_000)


def test_a_row_survives_the_store() -> None:
    """A row of refusals is read from the store as it was written."""
    store = Machine(lambda: LIVED).store
    row = Backoff("refused", 4, 9_000, 3, 1, "x", 7_000, 67_000)
    assert store.change_rest("demo", NO_BACKOFF, row, "A/r1")
    assert store.read("demo").rest == row
