"""Whose step comes next among many streams."""

from collections.abc import Generator

from hypothesis import given
from hypothesis import strategies as st

from handlers.connection.effects import ReadLease
from handlers.connection.steps import Answer, Await, Pause, Step, Steps
from handlers.group.rounds import Rounds


def plays(steps: list[Step], heard: list[object] | None = None) -> Steps[str]:
    """Asks for these steps, one after the other, and notes what each was answered by."""

    def run() -> Generator[Step, Answer, str]:
        for step in steps:
            answer = yield step
            if heard is not None:
                heard.append(answer.value)
        return "done"

    return run()


def raises() -> Steps[str]:
    """Asks for one step and then raises."""
    yield ReadLease()
    raise ValueError("a defect")


WAIT = Await(100, None)


def test_each_step_is_taken_once_and_answered_by_its_own() -> None:
    """What one stream asks for is no other's answer."""
    rounds: Rounds[str] = Rounds()
    heard: dict[str, list[object]] = {"a": [], "b": []}
    for stream in heard:
        rounds.begin(stream, plays([ReadLease(), ReadLease()], heard[stream]), 0)
    for _ in range(2):
        for stream, _step in list(rounds.asked()):
            rounds.answer(stream, Answer(1, stream))
        assert rounds.has_asked == bool(rounds)
    assert heard == {"a": ["a", "a"], "b": ["b", "b"]}
    assert list(rounds.ended()) == [("a", "done"), ("b", "done")]


def test_what_one_raises_reaches_no_other() -> None:
    """It ends, with what it raised; the other goes on."""
    rounds: Rounds[str] = Rounds()
    rounds.begin("a", raises(), 0)
    rounds.begin("b", plays([WAIT]), 0)
    ((stream, _),) = rounds.asked()
    rounds.answer(stream, Answer(1))
    ((name, what),) = rounds.ended()
    assert (name, str(what)) == ("a", "a defect")
    assert ("a" in rounds, "b" in rounds) == (False, True)


def test_pauses_and_waits_name_the_next_instant() -> None:
    """The first of all; a pause is over at its end."""
    rounds: Rounds[str] = Rounds()
    rounds.begin("a", plays([Await(None, 70)]), 10)
    rounds.begin("b", plays([Pause(30)]), 10)
    assert (rounds.due_ms, rounds.rested(39), rounds.rested(40)) == (40, [], ["b"])
    rounds.answer("b", Answer(40))
    assert rounds.due_ms == 70


@given(st.lists(st.sets(st.sampled_from("abcd")), max_size=40))
def test_between_two_servings_of_one_each_other_that_had_something_is_served(ready: list[set[str]]) -> None:
    """Whoever has something waits for one turn of each other at the most."""
    rounds: Rounds[str] = Rounds()
    for stream in "abcd":
        rounds.begin(stream, plays([WAIT] * 50), 0)
    waited = dict.fromkeys("abcd", 0)
    has: set[str] = set()
    for arrivals in ready:
        has |= arrivals
        first = next((stream for stream, _ in rounds.awaiting() if stream in has), None)
        if first is None:
            continue
        rounds.answer(first, Answer(1))
        has.discard(first)
        waited = {stream: waited[stream] + 1 if stream in has else 0 for stream in waited}
        assert max(waited.values()) < len(waited)
