"""The result with which a connection ends."""

from dataclasses import replace
from itertools import product

import pytest

from handlers.connection import ends
from handlers.connection.backoff import Refusal
from handlers.connection.effects import Outcome
from handlers.connection.inputs import Closed
from handlers.connection.lease import Lease, LeaseView
from handlers.connection.steps import Invocation

TAKEOVER = Outcome("StreamTakenOver", "", "connection 4 has taken over")


@pytest.mark.parametrize(("view", "ending"), list(product(LeaseView, [ends.EXPIRED, ends.LET_GO])))
def test_only_a_connected_successor_makes_an_end_a_takeover(view: LeaseView, ending: Outcome) -> None:
    """A stop outranks a takeover; a claim alone is awaited; without a successor the connection's own reason stays."""
    wanted = {LeaseView.STOPPED: ends.STOPPED, LeaseView.TAKEN_OVER: TAKEOVER, LeaseView.CLAIMED: None}
    assert ends.outcome_by_lease(view, ending, TAKEOVER) == wanted.get(view, ending)
    assert ends.outcome_by_lease(view, ending, None) == (ends.STOPPED if view is LeaseView.STOPPED else ending)


def test_a_takeover_names_the_successor_or_the_end_of_the_execution() -> None:
    """After a takeover by its own execution the lane waits; after one by another execution it does not come back."""
    lease = Lease(fence=4, connected_token=4)
    assert ends.outcome_of_takeover(lease, is_superseded=False) == TAKEOVER
    assert ends.outcome_of_takeover(lease, is_superseded=True).error == ""


def test_a_due_renewal_replaces_a_usual_end() -> None:
    """RenewalDue names the end that it replaces. Failures, which the machine counts, and clean ends stay."""
    message = "StreamTakenOver: connection 4 has taken over"
    assert ends.with_renewal_due(TAKEOVER) == Outcome("RenewalDue", "", message)
    assert ends.with_renewal_due(ends.EXPIRED).message.startswith("ConnectionExpired: ")
    for outcome in (ends.LET_GO, ends.STOPPED, ends.SUPERSEDED, ends.NOT_DRAINED):
        assert ends.with_renewal_due(outcome) is outcome


def test_a_renewal_is_due_from_the_cycle_on_that_the_machine_names() -> None:
    """An older machine names no cycle, so no renewal is due; after a missed cycle it is due in the next."""
    who = Invocation("demo", "A", "", "r1", 0, 0, 0, 0, 0)
    cycles = [(0, 0), (3, 5), (4, 5), (9, 5)]
    is_due = [replace(who, cycles=before, renew_after=after).is_renewal_due for before, after in cycles]
    assert is_due == [False, False, True, True]


@pytest.mark.parametrize(
    ("closed", "was_connected", "error", "message"),
    [
        (Closed("reset"), True, "StreamDropped", "the stream was closed (reset)"),
        (Closed("refused", "111"), False, "StreamDropped", "the stream was not opened (refused): 111"),
        (Closed("rejected", "no host"), False, "StreamRejected", "the stream was not opened (rejected): no host"),
    ],
)
def test_the_outcome_of_a_close_has_its_reason(closed: Closed, was_connected: bool, error: str, message: str) -> None:
    """A request that cannot be made ends as StreamRejected, any other close as StreamDropped, each with its reason."""
    outcome = ends.end_of_drop(closed, was_connected, 300).outcome
    assert (outcome.error, outcome.message) == (error, message)


def test_the_words_of_an_upstream_are_bounded_and_visible() -> None:
    """A text above the limit ends with an ellipsis; a line end or control character becomes an escape sequence."""
    most = ends.MOST_CHARACTERS
    assert [ends.safe_phrase("a" * length) for length in (most, most + 1)] == ["a" * most, "a" * (most - 1) + "…"]
    assert ends.safe_phrase("a\n\x1b") == "a\\n\\x1b"


@pytest.mark.parametrize(
    ("now_ms", "is_alone", "error", "says"),
    [
        (0, True, "StreamDropped", ": final if it goes on for 700 s"),
        (699_999, True, "StreamDropped", ": final if it goes on for 0 s"),
        (700_000, True, "StreamRejected", " for 700 s: a retry cannot help"),
        (700_000, False, "StreamDropped", ": final once no other connection is open"),
    ],
)
def test_a_refusal_is_final_once_it_lasted_and_no_other_connection_is_open(
    now_ms: int, is_alone: bool, error: str, says: str
) -> None:
    """A refusal is final once its limit is over and no other connection is open; before, its message says when."""
    judged = ends.outcome_of_refusal(
        Outcome("StreamRejected", "", "no"), Refusal(0, 700_000), now_ms, is_alone=is_alone
    )
    assert judged == Outcome(error, "", f"no{says}")
