"""The steps of an invocation on two kinds of ports: what is requested, and the tables afterwards.

A replay and chaos get the same wire, the same store and the same other connections. The performer must get the same
steps in the same order, with the same arguments.
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handlers.connection.effects import Claim, Heartbeat, MarkConnected, RecordLoss, Release, Write
from handlers.connection.inputs import Arrival, Chunk, Closed, Opened
from handlers.connection.steps import Await
from handlers.run.requests import Requests
from tests.examples import examples
from tests.handlers.performers import Wire, compare, event, in_chaos, run, too_long
from tests.handlers.scripted import Script

# --- scripted wires ---------------------------------------------------------------------------------------------------

OPENED = (90, Opened(200))
TAKEN_OVER = ((3_050, "claim"), (3_450, "connect"))
MANY = b"".join(event(number) for number in range(600))
WIRES = {
    "nobody answers": Wire(()),
    "events until the deadline": Wire(([OPENED, *((700 * n, Chunk(event(n))) for n in range(1, 40))],)),
    "a chunk of many writes": Wire(([OPENED, (2_500, Chunk(MANY)), (9_000, Closed("reset"))],)),
    "a loss beside events": Wire(
        ([OPENED, (2_500, Chunk(event(1) + event(2, "lost") + event(3))), (9_000, Closed("stalled"))],)
    ),
    "the end of the stream": Wire(([OPENED, (300, Chunk(event(1) + event(2, "end")))],)),
    "a stop": Wire(([OPENED, (300, Chunk(event(1)))],), ((2_700, "stop"),)),
    "a stop before the claim": Wire((), ((0, "stop"),)),
    "a take-over": Wire(([OPENED, (300, Chunk(event(1)))],), TAKEN_OVER),
    "an eviction": Wire(([OPENED, (3_400, Closed("ended_by_upstream"))],), TAKEN_OVER, {"overlap": "evicts"}),
    "a second that is forbidden": Wire(
        ([OPENED, (5_000, Chunk(event(1)))],),
        ((0, "claim"), (0, "connect"), (1_300, "release"), (6_050, "claim")),
        {"overlap": "forbids"},
    ),
    "refusals with tries in place": Wire(
        ([(50, Opened(503))], [(50, Opened(429, {"retry-after": "2"}))], [OPENED, (400, Chunk(event(1)))]),
        (),
        {"reconnect_tries": 5, "backoff": {"throttled": {"start_s": 1}, "http": {"start_s": 1}}},
    ),
    "a drop, and behind the cursor again": Wire(
        ([OPENED, (800, Chunk(event(1))), (2_000, Closed("reset"))], [OPENED, (300, Chunk(event(2)))]),
        (),
        {"reconnect_tries": 1},
    ),
    "a store that fails": Wire(([OPENED, (2_500, Chunk(MANY))],), ((2_400, "outage"),)),
    "a store that fails between two connections": Wire(
        ([(50, Opened(503))],), ((40, "outage"),), {"reconnect_tries": 2, "backoff": {"http": {"start_s": 1}}}
    ),
    "a cursor that is too old while another reads": Wire(
        ([(50, Opened(410)), (51, Chunk(b"too old"))], [OPENED, (300, Chunk(event(9)))]),
        ((0, "claim"), (0, "connect"), (0, "save")),
        {"statuses": {"410": "expired"}},
    ),
    "a reconnection time": Wire(
        (
            [OPENED, (300, Chunk(event(1) + b"retry: 3000\n\n")), (2_000, Closed("ended_by_upstream"))],
            [(10, Closed("refused"))],
            [OPENED, (300, Chunk(event(2)))],
        ),
        (),
        {"reconnect_tries": 3},
    ),
    "an event that is too long": Wire(
        ([OPENED, (300, Chunk(event(1) + too_long(2)[:20])), (900, Chunk(too_long(2)[20:] + event(3)))],), TAKEN_OVER
    ),
    "one that has not ended": Wire(([OPENED, (300, Chunk(event(1) + too_long(2)[:-2]))],), TAKEN_OVER),
    "one that is rejected": Wire(([OPENED, (300, Chunk(event(1) + too_long(2)))],), (), {"oversize": "reject"}),
    "hot lanes": Wire(([OPENED, (300, Chunk(event(1)))],), TAKEN_OVER, {"standby": "hot"}),
}


@pytest.mark.parametrize("name", WIRES)
def test_every_performer_is_asked_for_the_same(name: str) -> None:
    """The steps, their order and their arguments are the same, and so are the tables afterwards."""
    assert compare(WIRES[name])


def test_what_follows_from_a_step_comes_before_what_was_to_come_after_it() -> None:
    """The cursor is saved between two writes of one chunk."""
    steps = [step for step in compare(WIRES["a chunk of many writes"]) if isinstance(step, Write | Heartbeat)]
    counts = [len(step.events) if isinstance(step, Write) else step.cursor for step in steps]
    assert counts[counts.index(250) :][:4] == [250, "249", 250, 100]


def test_what_is_due_comes_before_a_write() -> None:
    """This holds however many events come at once; here the lease is due when they come."""
    steps = compare(Wire(([OPENED, (2_090, Chunk(MANY)), (9_000, Closed("reset"))],)))
    first = next(at for at, step in enumerate(steps) if isinstance(step, Write))
    assert [type(step) for step in steps[first - 2 : first]] == [Await, Heartbeat]


def test_an_event_that_is_too_long_is_sent_before_the_cursor_passes_it() -> None:
    """With any performer its rest goes where events go, the next event is stored, then the cursor moves."""
    steps = compare(WIRES["an event that is too long"])
    writes = [step.events for step in steps if isinstance(step, Write)]
    assert [[event.id for event in events] for events in writes] == [["1"], ["2", "3"]]
    sent = [letter["event"] for letter in run(in_chaos, WIRES["an event that is too long"]).dead_letters]
    assert [(letter["id"], letter["size_bytes"], letter["is_whole"]) for letter in sent] == [("2", 60, True)]
    saved = [step.cursor for step in steps[steps.index(next(one for one in steps if isinstance(one, Write))) :]
             if isinstance(step, Heartbeat | Release) and step.cursor is not None]  # fmt: skip
    assert saved[-1] == "3"


def test_claim_then_connect_then_mark() -> None:
    """This is the order of a handover, of the first connection, and of the next in the same invocation."""
    steps = compare(WIRES["a drop, and behind the cursor again"])
    claims = [step for step in steps if isinstance(step, Claim | MarkConnected)]
    assert [type(step) for step in claims] == [Claim, MarkConnected] * 2
    assert [step.after_fence for step in claims if isinstance(step, Claim)] == [0, 1]


# --- generated wires --------------------------------------------------------------------------------------------------

texts = st.lists(
    st.sampled_from(["event", "event", "event", "long", "lost", "cut", "retry", "end"]), min_size=1, max_size=3
)
ends = st.sampled_from([None, Closed("reset"), Closed("ended_by_upstream"), Closed("stalled")])
refusals: list[Arrival] = [Opened(503), Opened(429, {"retry-after": "1"}), Closed("refused")]
answers = st.sampled_from([Opened(200)] * 6 + refusals)
delays = st.integers(1, 4_000)


def frame(word: str, number: int) -> bytes:
    """Return the event of a word."""
    return too_long(number) if word == "long" else event(number, word if word in ("lost", "end") else "")


@st.composite
def openings(draw: st.DrawFn) -> tuple[Script, ...]:
    """Draw up to three openings, whose events have consecutive numbers."""
    scripts: list[Script] = []
    number = 0
    for _ in range(draw(st.integers(0, 3))):
        at_ms = draw(delays)
        script: Script = [(at_ms, draw(answers))]
        if script[0][1] == Opened(200):
            for words in draw(st.lists(texts, max_size=6)):
                at_ms += draw(delays)
                frames = [frame(word, number + at) for at, word in enumerate(words)]
                frames.append(b"retry: %d\n\n" % draw(delays) if "retry" in words else b"")
                number += len(words)
                data = b"".join(frames)
                script.append((at_ms, Chunk(data[:-3] if words[-1] == "cut" else data)))
                if words[-1] == "cut":
                    at_ms += draw(delays)
                    script.append((at_ms, Chunk(data[-3:])))
            end = draw(ends)
            script += [] if end is None else [(at_ms + draw(delays), end)]
        scripts.append(script)
    return tuple(scripts)


@st.composite
def wires(draw: st.DrawFn) -> Wire:
    """Draw an upstream, others who claim, connect, stop or make the store fail, and a profile."""
    others: list[tuple[int, str]] = []
    if draw(st.booleans()):
        at_ms = draw(st.integers(0, 20_000))
        others = [(at_ms, "claim"), (at_ms + draw(delays), "connect"), (at_ms + 4_000 + draw(delays), "release")]
    for what in ("stop", "outage"):
        if draw(st.integers(0, 3)) == 0:
            others.append((draw(st.integers(0, 20_000)), what))
    profile: dict[str, Any] = {"overlap": draw(st.sampled_from(["tolerates", "evicts", "forbids"]))}
    if profile["overlap"] == "tolerates" and draw(st.booleans()):
        profile["standby"] = "hot"
    profile["reconnect_tries"] = draw(st.integers(0, 2))
    if draw(st.booleans()):
        profile["backoff"] = {kind: {"start_s": 1} for kind in ("network", "http", "throttled")}
    return Wire(draw(openings()), tuple(others), profile)


@given(wires())
@settings(max_examples=examples(100))
def test_every_performer_is_asked_for_the_same_of_any_wire(wire: Wire) -> None:
    """This holds whatever comes and whatever others do."""
    assert compare(wire, is_generated=True)


def test_the_comparison_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would see a performer that left a step out."""
    wire = WIRES["a loss beside events"]
    sound_contents = run(in_chaos, wire).contents()
    sound = Requests.of

    def forgetful(requests: Requests, step: Any) -> Any:
        return sound(requests, replace(step, cause="") if isinstance(step, RecordLoss) else step)

    monkeypatch.setattr(Requests, "of", forgetful)
    assert run(in_chaos, wire).contents() != sound_contents
