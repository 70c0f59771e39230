"""Pages are joined into whole histories, in any order and size."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.analysis import HistoryError, join_histories, read_page

NO_TIME = "events[0].timestamp must be an instant: ISO 8601, or seconds since 1970"


def events(count: int, at_s: float = 1.7e9) -> list[dict[str, Any]]:
    """Returns a history of that many events, a second apart."""
    kinds = ["ExecutionStarted", *["WaitStateEntered"] * (count - 1)]
    return [{"id": n, "type": kind, "timestamp": at_s + n} for n, kind in enumerate(kinds, 1)]


@given(st.integers(1, 60), st.integers(1, 20), st.booleans(), st.randoms(use_true_random=False))
def test_pages_of_one_execution_in_any_order(count: int, size: int, newest_first: bool, order: random.Random) -> None:
    """Any order of pages, any order of events in a page, and overlapping pages give the same history."""
    whole = events(count)
    pages = [whole[at : at + size + 1] for at in range(0, count, size)]
    order.shuffle(pages)
    given_pages = [("page", read_page({"events": page[::-1] if newest_first else page})) for page in pages]
    assert join_histories(given_pages) == [whole]


@given(st.integers(1, 30), st.integers(1, 30), st.integers(1, 12))
def test_pages_of_two_executions_are_told_apart(first: int, second: int, size: int) -> None:
    """Event 1 begins another execution, to which the pages that follow belong."""
    both = [events(first), events(second, 1.8e9)]
    pages = [("page", read_page(one[at : at + size])) for one in both for at in range(0, len(one), size)]
    assert join_histories(pages) == both


def test_whole_seconds_are_seconds() -> None:
    """A time without a fraction is not taken for milliseconds, and milliseconds stay milliseconds."""
    page = read_page([{"id": 1, "type": "ExecutionStarted", "timestamp": at} for at in (1_700_000_000,)])
    assert repr(page[0]["timestamp"]) == "1700000000.0"
    assert repr(read_page([{**page[0], "timestamp": 1_700_000_000_123}])[0]["timestamp"]) == "1700000000123"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"executions": []}, 'it has no list "events", as `aws stepfunctions get-execution-history` prints it'),
        ({"events": []}, "it has no events"),
        ([1], "events[0] is no object"),
        ([{"id": True, "type": "x", "timestamp": 1}], "events[0].id must be a whole number of at least 1"),
        ([{"id": 1, "timestamp": 1}], "events[0].type must be a text such as ExecutionStarted"),
        ([{"id": 1, "type": "x", "previousEventId": "0"}], "events[0].previousEventId must be a whole number"),
        ([{"id": 1, "type": "x", "xEventDetails": None}], "events[0].xEventDetails must be an object"),
        ([{"id": 1, "type": "x", "timestamp": "noon"}], NO_TIME),
        ([{"id": 1, "type": "x"}], NO_TIME),
        ([{"id": 1, "type": "x", "timestamp": 1e30}], NO_TIME),
    ],
)
def test_a_file_that_is_no_history_is_refused(answer: object, message: str) -> None:
    """The message names the field and what it should be."""
    with pytest.raises(HistoryError) as refused:
        read_page(answer)
    assert str(refused.value) == message


def test_a_missing_page_is_named() -> None:
    """A hole is reported with the numbers of the missing events; so is a missing beginning."""
    whole = events(10)
    for pages, message in (
        ([whole[:3], whole[6:]], "events 4 to 6 are missing: give every page of the history"),
        ([whole[:3], whole[4:]], "event 4 is missing: give every page of the history"),
        ([whole[3:]], "page: the page with event 1 is missing; this one begins at 4"),
        (
            [whole, events(4, 1.9e9)[1:]],
            "event 2 occurs twice with different contents: give the histories of one execution at a time",
        ),
    ):
        with pytest.raises(HistoryError) as refused:
            join_histories([("page", page) for page in pages])
        assert str(refused.value) == message
