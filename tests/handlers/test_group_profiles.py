"""The profiles of a group's streams: a function's requests for them, and the streams that wait for the answers."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.errors import InvalidRequest, StoreUnavailable
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.run.group_ports import ReadProfiles
from handlers.run.group_profiles import AGAIN_MS, MOST_FRAME_BYTES, GroupProfiles
from handlers.run.threads import Answered
from local.simulation.virtual_ports import Answers


class Thread(Answers):
    """Keeps its requests until `perform_all` makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: deque[tuple[str, Callable[[], Any]]] = deque()
        self.is_stopped = False

    def ask(self, sender: str, *requests: Callable[[], Any]) -> None:
        self.asked.append((sender, requests[0]))

    def perform_all(self) -> None:
        """Make all requests that are kept."""
        while self.asked:
            sender, request = self.asked.popleft()
            try:
                self._answers.append((sender, Answered(request())))
            except Exception as error:
                self._answers.append((sender, Answered(error=error)))

    def stop(self, wait_s: float) -> None:
        """Only record that the thread was stopped without waiting; nothing runs."""
        self.is_stopped = wait_s == 0


class Deployed:
    """The profiles of a function, and those that are deployed now; `threads` names the threads that it made."""

    def __init__(self) -> None:
        self.own: dict[str, Profile] = {}
        self.now: dict[str, Profile] = {}
        self.is_mute = False
        self.thread = Thread()
        self.threads: list[str] = []
        self.questions: list[str] = []
        self.profiles = GroupProfiles(ReadProfiles(self._own, self._deployed), self._thread)

    def _thread(self, _count: int, name: str) -> Thread:
        self.threads.append(name)
        return self.thread

    def _own(self, stream: str) -> Profile:
        return found(self.own, stream)

    def _deployed(self, stream: str) -> Profile:
        self.questions.append(stream)
        if self.is_mute:
            raise StoreUnavailable("AWS did not answer Invoke")
        return found(self.now, stream)

    def answers(self, now_ms: int = 0) -> dict[str, str]:
        """Make the kept requests; return for each answered stream why it has no profile, or an empty text."""
        self.thread.perform_all()
        return {stream: str(problem or "") for stream, problem in self.profiles.take_answers(now_ms)}


def found(profiles: dict[str, Profile], stream: str) -> Profile:
    name = stream.partition(":")[0]
    if name not in profiles:
        raise InvalidRequest(f"no profile is named {name!r}")
    return profiles[name]


def profile(name: str, address: str = "https://example.com/") -> Profile:
    return parse(name, {"address": address, "framing": "sse"}, {})


def test_a_profile_that_the_function_has_is_not_requested() -> None:
    """A profile that the function has itself causes neither a request nor a thread."""
    deployed = Deployed()
    deployed.own["a"] = profile("a")
    assert deployed.profiles.read("a:1", "joined") is deployed.own["a"]
    assert (deployed.answers(), deployed.threads, deployed.profiles.due_ms) == ({}, [], None)
    deployed.profiles.stop()
    assert not deployed.thread.is_stopped


def test_a_frame_that_no_shared_function_holds_is_refused_by_name() -> None:
    """A profile whose max_frame_bytes exceeds what a shared function holds is refused, even if deployed like that."""
    deployed = Deployed()
    longest = {"address": "https://example.com/", "framing": "sse", "max_frame_bytes": MOST_FRAME_BYTES}
    deployed.own["a"] = parse("a", longest, {})
    deployed.own["b"] = deployed.now["b"] = parse("b", longest | {"max_frame_bytes": MOST_FRAME_BYTES + 1}, {})
    assert deployed.profiles.read("a", "joined") is deployed.own["a"]
    for is_asked in (True, False):
        with pytest.raises(InvalidRequest, match=r"^the profile .b. has max_frame_bytes = 4194305, and"):
            deployed.profiles.read("b", "joined")
        assert deployed.profiles.must_wait("b", "joined") is is_asked
        deployed.answers()


def test_streams_of_one_profile_share_a_request() -> None:
    """Streams whose profile has the same name share one request, and each gets the answer once."""
    deployed = Deployed()
    for stream in ("a:1", "a:2", "b"):
        with pytest.raises(InvalidRequest, match="no profile is named"):
            deployed.profiles.read(stream, "joined")
        assert deployed.profiles.must_wait(stream, "joined")
    deployed.now["a"] = profile("a")
    assert deployed.answers() == {"a:1": "", "a:2": "", "b": "no profile is named 'b'"}
    assert (deployed.questions, deployed.threads) == (["a:1", "b"], ["profiles"])
    assert deployed.profiles.read("a:2", "joined") is deployed.now["a"]
    assert deployed.answers() == {}
    deployed.profiles.stop()
    assert deployed.thread.is_stopped


def test_a_deployed_profile_that_does_not_suit_is_not_requested_twice() -> None:
    """If the deployed profile does not suit the stream, it is requested again only once the stream joins anew."""
    deployed = Deployed()
    deployed.now["a"] = profile("a", "https://example.com/{name}")
    assert deployed.profiles.must_wait("a", "first")
    assert deployed.answers() == {"a": ""}
    with pytest.raises(InvalidRequest):
        deployed.profiles.read("a", "joined")
    assert not deployed.profiles.must_wait("a", "first")
    assert deployed.profiles.must_wait("a", "second")
    deployed.now["a"] = profile("a")
    assert deployed.answers() == {"a": ""}
    assert deployed.profiles.read("a", "joined") is deployed.now["a"]


def test_the_profile_of_a_rejected_stream_is_requested_once_it_joins_anew() -> None:
    """A rejected stream that joins anew gets the profile deployed by then, as do waiting streams of the same name.

    A profile that the function itself reads later replaces that one.
    """
    deployed = Deployed()
    deployed.own["a"] = wrong = profile("a", "https://example.com/wrong")
    assert deployed.profiles.read("a:1", "first") is wrong
    deployed.profiles.record_rejection("a:1")
    deployed.now["a"] = right = profile("a")
    for stream, joined in (("a:1", "second"), ("a:2", "first")):
        with pytest.raises(InvalidRequest, match="was rejected"):
            deployed.profiles.read(stream, joined)
        assert deployed.profiles.must_wait(stream, joined)
    assert deployed.answers() == {"a:1": "", "a:2": ""}
    assert (deployed.questions, deployed.profiles.read("a:1", "second")) == (["a:1"], right)
    deployed.profiles.record_rejection("a:1")
    assert deployed.profiles.read("a:2", "first") is right  # a:2 was answered since it joined
    deployed.own["a"] = newer = profile("a", "https://example.com/newer")
    assert deployed.profiles.read("a:2", "first") is newer


@given(st.lists(st.integers(1, 2 * AGAIN_MS), min_size=1, max_size=20))
def test_a_failed_request_for_a_profile_is_repeated(steps_ms: list[int]) -> None:
    """A failed request is repeated at the first check AGAIN_MS later; streams that join meanwhile share its answer."""
    deployed, now_ms, failed_ms, expected = Deployed(), 0, 0, 1
    deployed.is_mute = True
    assert deployed.profiles.must_wait("a:0", "joined")
    assert deployed.answers(now_ms) == {}
    for number, step_ms in enumerate(steps_ms, 1):
        now_ms += step_ms
        assert deployed.profiles.due_ms == failed_ms + AGAIN_MS
        assert deployed.profiles.must_wait(f"a:{number}", "joined")
        assert deployed.answers(now_ms) == {}
        if now_ms >= failed_ms + AGAIN_MS:
            failed_ms, expected = now_ms, expected + 1
            assert deployed.answers(now_ms) == {}  # the request was repeated, and fails
        assert len(deployed.questions) == expected
    deployed.is_mute = False
    deployed.now["a"] = profile("a")
    assert deployed.answers(failed_ms + AGAIN_MS) == {}  # the request is repeated
    assert set(deployed.answers(failed_ms + AGAIN_MS)) == {f"a:{number}" for number in range(len(steps_ms) + 1)}
    assert deployed.profiles.due_ms is None
