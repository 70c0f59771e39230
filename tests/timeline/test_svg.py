"""The picture is a document that is understood without colours."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from timeline.coverage import Connection, gaps
from timeline.spans import Span
from timeline.svg import WIDTH, Group, draw, duration

SVG = "{http://www.w3.org/2000/svg}"
UNTIL_MS = 600_000


def draw_example(*connections: Connection, label: str = "one", until_ms: int = UNTIL_MS) -> ElementTree.Element:
    spans = [Span("A", "wait", 0, None)]
    group = Group(label, "two\nlines", spans, connections, gaps(connections, until_ms))
    return ElementTree.fromstring(draw([group], until_ms, "a <title>"))


def mark_texts(picture: ElementTree.Element, kind: str) -> list[str]:
    """Returns the words of the marks of a kind."""
    found = [rect.find(f"{SVG}title") for rect in picture.iter(f"{SVG}rect") if rect.get("class") == kind]
    return [title.text or "" for title in found if title is not None]


def test_overlaps_and_gaps_say_what_they_are() -> None:
    """An overlap and a gap each have a mark with their times, however short they are."""
    picture = draw_example(
        Connection("A", 0, 200_000, "superseded"),
        Connection("B", 199_999, 300_000, "reset"),
        Connection("A", 300_001, 400_000, "ended_by_upstream"),
    )
    assert mark_texts(picture, "both") == ["overlap: 199.999 to 200.000 s, 0.001 s"]
    assert mark_texts(picture, "thin") == ["gap: 300.000 to 300.001 s, 0.001 s, after reset"]
    assert mark_texts(picture, "gap") == ["gap: 400.000 to 600.000 s, 3 min 20 s, after ended_by_upstream"]
    assert mark_texts(picture, "wait") == ["waiting: 0.000 to 600.000 s, 10 min"]


@given(
    st.lists(st.tuples(st.sampled_from("ABC"), st.integers(0, UNTIL_MS), st.integers(0, UNTIL_MS)), max_size=30),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), max_size=20),
    st.integers(1, 10**11),
)
def test_every_picture_is_whole(times: list[tuple[str, int, int]], label: str, until_ms: int) -> None:
    """Whatever is drawn, it is XML, fits its width, and each gap has its mark."""
    connections = [Connection(lane, min(a, b), max(a, b), "reset") for lane, a, b in times]
    picture = draw_example(*connections, label=label, until_ms=until_ms)
    for rect in picture.iter(f"{SVG}rect"):
        assert float(rect.get("x", "0")) + float(rect.get("width", "0")) <= WIDTH
    assert bool(mark_texts(picture, "thin") + mark_texts(picture, "gap")) == bool(gaps(connections, until_ms))


def test_durations_have_at_most_two_units() -> None:
    """A duration is written with at most two units, such as 2 h 30 min."""
    said = [duration(seconds) for seconds in (0, 0.25, 45, 90, 900, 9000, 259_200, 90_061)]
    assert said == ["0 s", "0.25 s", "45 s", "1 min 30 s", "15 min", "2 h 30 min", "3 d", "1 d 1 h"]
