"""Following scripted pages: when the place is saved, which events come again, and which errors end the follower."""

import asyncio
import contextlib
import email.utils
import re
import resource
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from streamkeeper import Client, Event, NotFound, Seen, StreamkeeperError, Unreachable, once
from streamkeeper.event import event_of
from streamkeeper.follower import FileCheckpoint
from streamkeeper.following import LATE_MS
from tests.client.api_server import STREAM, afters, answers, asked, event, page, problem
from tests.handlers.servers import Peer, sends, serving

SINCE = "2026-11-24"
HOLDER = "import sys; from streamkeeper.follower import FileCheckpoint as F; print(F(sys.argv[1]).load()); input()"


class Memory:
    """A checkpoint that keeps every saved place."""

    def __init__(self) -> None:
        self.saved: list[dict[str, Any]] = []

    def load(self) -> dict[str, Any] | None:
        return self.saved[-1] if self.saved else None

    def save(self, state: dict[str, Any]) -> None:
        self.saved.append(state)

    @property
    def places(self) -> list[str]:
        """Returns the keys of the events after which a place was saved."""
        return [str(int(state["after"][:15])) if state["after"] else "" for state in self.saved]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Records the waits of the follower; no time passes, and each save is due at once."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    monkeypatch.setattr("streamkeeper.follower.SAVE_EVERY_S", 0.0)
    return waited


async def taken(events: AsyncGenerator[Event, None], count: int) -> list[str]:
    """Returns the keys of the first `count` events; the consumer leaves before it has finished the last one."""
    keys: list[str] = []
    async with contextlib.aclosing(events) as all_of_them:
        async for one in all_of_them:
            keys.append(one.key)
            if len(keys) == count:
                break
    return keys


def test_an_event_is_saved_once_the_next_is_requested(waits: list[float]) -> None:
    """An event is done when the consumer requests the next. The start is saved too, so an early kill loses none."""
    memory = Memory()
    with serving(page(1, 2, is_last=False), page(3, 4)) as server:
        follow = Client(server.address).follow(STREAM, since="2026-11-24", checkpoint=memory)
        assert asyncio.run(taken(follow, 3)) == ["1", "2", "3"]
    assert memory.places == ["", "1", "2"]
    assert memory.saved[0] == {"stream": STREAM, "after": "", "since": "2026-11-24T00:00:00.000Z"}
    with serving(page(3, 4)) as server:
        follow = Client(server.address).follow(STREAM, checkpoint=memory)
        assert asyncio.run(taken(follow, 2)) == ["3", "4"]
        assert afters(server) == [2]
    assert (memory.places, waits) == (["", "1", "2", "3"], [])


def test_a_follower_waits_out_an_outage_and_a_start(waits: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """It waits for a stream that has just been started, and without limit for an API that has answered before."""
    starting, throttled = answers(problem("never-started"), 404), answers({}, 429, "Retry-After: 90")
    scripts = [starting, page(1), throttled, Peer.reset, page(2)]
    with serving(*scripts) as server:
        assert asyncio.run(taken(Client(server.address, patient_s=0).follow(STREAM, since=SINCE), 2)) == ["1", "2"]
        assert afters(server) == [None, None, 1, 1, 1]
    assert waits == [1.0, 1.0, 90.0, 2.0]
    assert caplog.messages[0] == "The stream has not started yet; waiting 15 s."


def test_a_foreign_answer_is_an_outage_if_the_api_has_answered_before(waits: list[float]) -> None:
    """A proxy's error page may come with status 200. At an address that has never answered as an API it is an error."""
    foreign = sends(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<html>Back soon</html>")
    with serving(page(1), foreign, answers({}), page(2)) as server:
        assert asyncio.run(taken(Client(server.address).follow(STREAM, since=SINCE), 2)) == ["1", "2"]
    assert waits == [1.0, 1.0, 2.0]
    with serving(foreign) as server, pytest.raises(StreamkeeperError, match="not that of a Streamkeeper API"):
        asyncio.run(taken(Client(server.address).follow(STREAM, since=SINCE), 1))


@pytest.mark.parametrize(
    ("ahead", "ago", "since"), [(7200, 0, None), (-7200, 0, None), (7200, 60, "1m"), (7200, 60, timedelta(minutes=1))]
)
def test_relative_times_count_from_the_clock_of_the_api(
    waits: list[float], ahead: int, ago: int, since: str | timedelta | None
) -> None:
    """With the caller's own clock ahead, `follow` would show nothing for that long, and `events` and `gaps` would leave
    out hours. The client takes the API's time from the Date of an answer.
    """
    there = datetime.now(UTC) - timedelta(seconds=ahead)
    date = f"Date: {email.utils.format_datetime(there, usegmt=True)}"
    gaps, clock = answers({"stream": STREAM, "gaps": [], "next": None}), answers({"streams": []}, 200, date)
    with serving(clock, page(1), *([clock, page(1), clock, gaps] if since else [])) as server:
        client = Client(server.address)
        assert asyncio.run(taken(client.follow(STREAM, since=since), 1)) == ["1"]
        if since:
            assert [one.key for one in client.events(STREAM, since=since)] == ["1"]
            assert [*client.gaps(STREAM, since=since)] == []
        begins = re.findall(r"from=([^& ]+)", " ".join(asked(server)))
    assert len(begins) == (3 if since else 1)
    for begin in begins:
        at = datetime.fromisoformat(begin.replace("%3A", ":"))
        assert abs(at - there + timedelta(seconds=ago)) < timedelta(seconds=60)
    assert waits == []


def test_a_cancelled_follower_does_not_wait_for_an_answer() -> None:
    """A cancelled follower and an exiting program both end at once, though the API may be silent for half a minute."""
    with serving(page(1), Peer.wait_until_gone) as server:

        async def program() -> None:
            client = Client(server.address, timeout_s=15)
            follow = asyncio.create_task(taken(client.follow(STREAM, since=SINCE, every_s=0.001), 2))
            await asyncio.to_thread(server.wait_for_peers, 2)
            follow.cancel()

        asyncio.run(program())
        assert "streamkeeper-follow" in [one.name for one in threading.enumerate()]


def test_a_follower_raises_if_no_event_can_come(waits: list[float]) -> None:
    """An unknown stream, a stream that nobody starts, and an API that has never answered each raise their own error."""
    for kind, requests in (("unknown-stream", 1), ("never-started", 16)):
        with serving(answers(problem(kind), 404)) as server:
            with pytest.raises(NotFound):
                asyncio.run(taken(Client(server.address).follow(STREAM, since=SINCE), 1))
            assert len(server.peers) == requests
    with pytest.raises(Unreachable):
        asyncio.run(taken(Client("http://127.0.0.1:9").follow(STREAM), 1))
    assert waits == [1.0] * 15


def test_a_checkpoint_file_keeps_the_place(tmp_path: Path, waits: list[float]) -> None:
    """The file overrides `after`. A file of another stream, or an invalid one, is refused and not changed."""
    file = tmp_path / "prices.checkpoint"
    with serving(page(7, 8)) as server:
        client = Client(server.address)
        assert asyncio.run(taken(client.follow(STREAM, event(6)["position"], checkpoint=file), 2)) == ["7", "8"]
        assert asyncio.run(taken(client.follow(STREAM, event(1)["position"], checkpoint=str(file)), 1)) == ["7"]
        assert afters(server) == [6, 7]
        assert sorted(path.name for path in tmp_path.iterdir()) == [f".{file.name}.lock", file.name]
        kept = file.read_text()
        with pytest.raises(StreamkeeperError, match="belongs to the stream 'prices', not to 'others'"):
            asyncio.run(taken(client.follow("others", checkpoint=file), 1))
        assert file.read_text() == kept
        for text, words in (("", "is not a checkpoint: name another file"), ("{}", "has another layout")):
            file.write_text(text)
            with pytest.raises(StreamkeeperError, match=words):
                asyncio.run(taken(client.follow(STREAM, checkpoint=file), 1))
            assert file.read_text() == text
        for path, why in ((tmp_path / "none" / "at", "No such file or directory"), (tmp_path, "Is a directory")):
            with pytest.raises(StreamkeeperError, match=rf"{path} cannot be used: {why}\."):
                asyncio.run(taken(client.follow(STREAM, checkpoint=path), 1))
            with pytest.raises(StreamkeeperError, match=rf"{path} cannot be used: unable to open database file\."):
                Seen(path)
    assert waits == []


def test_a_full_disk_raises_and_keeps_the_saved_place(tmp_path: Path) -> None:
    """The error is one of the client's own, like any other error of `follow`."""
    checkpoint = FileCheckpoint(tmp_path / "prices.checkpoint")
    checkpoint.save({"stream": STREAM})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    try:
        with pytest.raises(StreamkeeperError, match=r"prices\.checkpoint cannot be used: File too large\."):
            checkpoint.save({"stream": STREAM, "after": "later"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert checkpoint.load() == {"stream": STREAM}


def test_another_process_cannot_use_the_checkpoint(tmp_path: Path) -> None:
    """Two processes would overwrite each other's place. The file is free again once its process has ended. Within one
    process the newer follower takes it over.
    """
    file = tmp_path / "prices.checkpoint"
    command = [sys.executable, "-c", HOLDER, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "None\n"
        with pytest.raises(StreamkeeperError, match="Another process uses the checkpoint"):
            FileCheckpoint(file).load()
        holder.kill()
    first, second = FileCheckpoint(file), FileCheckpoint(file)
    assert [first.load(), second.load()] == [None, None]
    second.save({"stream": STREAM})
    with pytest.raises(StreamkeeperError, match="A later follower uses the checkpoint"):
        first.save({"stream": STREAM})


def test_a_resumed_follower_rereads_the_time_of_late_writes(waits: list[float]) -> None:
    """In the order of arrival, the saved place lies before the time in which events may still be written."""
    received_ms, came = 1_795_231_058_000, {"received_at": "2026-11-21T03:17:38.000Z"}
    position = f"{received_ms:015d}/{1:012d}/{0:012d}"
    events = [event(1) | came | {"position": position}, event(2) | came | {"position": position[:-1] + "1"}]
    memory = Memory()
    with serving(answers({"stream": STREAM, "events": events, "next": None})) as server:
        assert asyncio.run(taken(Client(server.address).follow(STREAM, checkpoint=memory), 1)) == ["1"]
        assert asyncio.run(taken(Client(server.address).follow(STREAM, checkpoint=memory), 2)) == ["1", "2"]
    assert received_ms - int(memory.places[-1]) >= LATE_MS
    assert waits == []


def test_once_passes_each_key_on_once(tmp_path: Path) -> None:
    """The first event of each key is passed on, in order. With a file this holds across restarts, except that an event
    which the consumer had not finished comes again.
    """
    file = tmp_path / "seen"
    with serving(page(1, 2, 3)) as server:
        events = Client(server.address).events(STREAM)
        assert [one.key for one in once([*events, *events])] == ["1", "2", "3"]
        with Seen(file) as seen:
            iterator = once(events, seen)
            assert [next(iterator).key for _ in range(2)] == ["1", "2"]
        with Seen(file) as seen:
            assert [one.key for one in once(events, seen)] == ["2", "3"]
            assert [one.key for one in once(events, seen)] == []
        with Seen(file, most=2) as seen:
            seen.add("4")
            assert [key in seen for key in (f"{STREAM}\n2", f"{STREAM}\n3", "4")] == [False, True, True]


def test_a_key_is_unique_within_its_stream() -> None:
    """Events with the same key in two streams, or in two parts of a stream, are different events."""
    raw = [{"position": str(at), "key": "1", "stream": part} for at, part in enumerate(("a:1", "a:2", "a:1"))]
    events = [event_of(stream, one) for stream in "ab" for one in (*raw, event(1))]
    assert [(one.stream, one.part) for one in once(events)] == [("a", "a:1"), ("a", "a:2"), ("a", None), ("b", None)]
