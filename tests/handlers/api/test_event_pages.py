"""Pages of events: how many fit into an answer, and where the next page begins."""

import json
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from handlers.api.answers import format_json
from handlers.api.event_pages import MOST, PAGE_BYTES, event_json, page
from handlers.store.event_items import Entry, StoredEvent

LAMBDA_BYTES = 6_291_556


def stored(number: int, data: str | bytes | None, place: str | None = None) -> StoredEvent:
    return StoredEvent(f"k{number}", data, None, None, number, 1, f"{number:015d}/{1:012d}/{number:012d}", object=place)


def entries(bodies: Sequence[str | bytes | None]) -> list[Entry]:
    events = [stored(number, body) for number, body in enumerate(bodies)]
    return [Entry(event.position, None if event.data is None else event) for event in events]


BODIES = st.lists(
    st.one_of(
        st.none(),
        st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=3), st.integers(1, 900_000)),
        st.builds(lambda number: b"\xff" * number, st.integers(0, 2_500_000)),
    ),
    max_size=6,
)


@given(BODIES, st.integers(1, 4))
def test_pages_hold_everything_once_and_fit_into_an_answer(bodies: list[str | bytes | None], limit: int) -> None:
    """With any bodies and limit, all events come once and in order, and each answer is below Lambda's bound."""
    left = entries(bodies)
    wanted = [entry.position for entry in left if entry.event is not None]
    keys: list[str] = []
    while True:
        # What the reader returns after the last position.
        answer = page("s", left[:limit], limit, lambda: False)
        assert len(json.dumps({"statusCode": 200, "body": format_json(answer)})) <= LAMBDA_BYTES
        keys += [event["position"] for event in answer["events"]]
        if answer["next"] is None:
            break
        left = [entry for entry in left if entry.position > answer["next"]]
    assert keys == wanted


def test_a_page_of_many_small_events_fits_into_an_answer() -> None:
    """A page of a thousand small events fits into Lambda's answer, with the line ends and indents of its layout."""
    full = page("s", entries(["x" * (PAGE_BYTES // MOST - 190)] * MOST), MOST, lambda: False)
    assert len(full["events"]) == MOST
    assert PAGE_BYTES < len(json.dumps({"statusCode": 200, "body": format_json(full)})) <= LAMBDA_BYTES


def test_a_body_that_no_answer_holds_is_left_out() -> None:
    """An event whose body is too large for an answer comes without the body, and names the place of the body."""
    too_large = '"' * (PAGE_BYTES // 4 + 1)
    (event,) = page("s", entries([too_large]), 1, lambda: False)["events"]
    assert (event["left_out"], "data" in event) == ("table", False)
    assert event_json(stored(1, None, "s/a/b"))["left_out"] == "s/a/b"


def test_a_page_ends_when_it_is_late() -> None:
    """A late page has at least one entry, and the next page begins after it."""
    answer = page("s", entries(["a", "b"]), MOST, lambda: True)
    assert ([event["data"] for event in answer["events"]], answer["next"]) == (["a"], answer["events"][0]["position"])
    assert page("s", [], MOST, lambda: True) == {"stream": "s", "events": [], "next": None}
