"""Functions of a group on threads, with real sockets on one side and the tables on the other."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from handlers.aws.lambda_environment import dynamodb, plain_aws
from handlers.aws.secret_values import SecretValues
from handlers.connection.effects import Outcome
from handlers.connection.steps import Invocation, Report
from handlers.errors import InvalidRequest, StoreUnavailable
from handlers.group.next_step import Delays
from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from handlers.run.group_invocation import run_group
from handlers.run.group_ports import GroupTables, ReadProfiles
from handlers.run.threads import SystemClock
from handlers.store.group_store import GroupStore
from tests.handlers.aws import CONTROL, EVENTS, SECRETS, Aws
from tests.handlers.lanes import refuse_client
from tests.handlers.scripted import numbered
from tests.handlers.servers import UNTIL_CLOSE, Peer, Server, serving
from tests.local.support import until

GROUP, EXECUTION = "#1", "E1"
WAIT_S = 60.0
DELAYS = Delays(retry_max_delay_s=1, throttle_delay_s=1, throttle_max_delay_s=2, cool_down_s=1, jitter_s=0)


class Group:
    """The records of a group, its running functions, and what its streams' upstreams have sent."""

    def __init__(self, aws: Aws) -> None:
        self.aws = aws
        self.clock = SystemClock()
        # As in Lambda, whose environment names no certificates of its own.
        plain = plain_aws({name: value for name, value in os.environ.items() if not name.endswith("_CA_BUNDLE")})
        assert plain is not None
        client = dynamodb(plain, tries=4)
        names = {"events_table": EVENTS, "control_table": CONTROL, "dead_letter_queue_url": aws.queue_url}
        self.client = client
        self.tables = GroupTables(client, lambda: aws.sqs, **names)
        self.records = GroupStore(aws.dynamodb, CONTROL, GROUP)
        self.reported: list[tuple[str, str]] = []
        # Streams whose profile the running functions do not have.
        self.unknown: set[str] = set()
        self.wrong: set[str] = set()  # streams whose profile has a wrong path in the running functions
        self.nowhere: set[str] = set()  # streams without a profile in the deployed version
        self.is_mute = False  # the deployed version does not answer
        self.asked: list[str] = []
        self.ended: dict[str, Outcome] = {}
        self.server: Server
        self._threads: list[threading.Thread] = []
        aws.put_control(GROUP, "lease", execution={"S": EXECUTION})

    def join(self, *streams: str) -> None:
        """Write what a POST writes, in its order."""
        joined = {"S": str(self.clock.now_ms())}
        for stream in streams:
            self.aws.put_control(stream, "lease", joined=joined, group={"S": GROUP}, stop={"BOOL": False})
            self.records.add_member(stream, joined["S"])
        self.records.raise_version()

    def leave(self, *streams: str) -> None:
        """Write what a DELETE writes, in its order."""
        for stream in streams:
            self.aws.put_control(stream, "lease", stop={"BOOL": True})
        self.records.raise_version()

    def start(self, request_id: str, lasts_s: float = 60, died: str = "") -> None:
        deadline_ms = self.clock.now_ms() + round(lasts_s * 1000)
        who = Invocation(
            GROUP, "A", EXECUTION, request_id, deadline_ms, 1_000, 200, 200, overlap_max_ms=28_000, died=died
        )
        thread = threading.Thread(target=self._run, args=(who,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, who: Invocation) -> None:
        secrets, read = SecretValues(refuse_client, SECRETS), ReadProfiles(self._own, self._deployed)
        outcome = run_group(who, self.tables, secrets, DELAYS, self.clock, read, self._log, self._report)
        self.ended[who.request_id] = outcome

    def _own(self, stream: str) -> Profile:
        if stream in self.unknown:
            raise InvalidRequest(f"there is no stream {stream!r}")
        profile = self._profile(stream)
        if stream in self.wrong:
            return replace(profile, address=self.server.address + "/refuses", reject_after=1)
        return profile

    def _deployed(self, stream: str) -> Profile:
        self.asked.append(stream)
        if self.is_mute:
            raise StoreUnavailable("AWS did not answer Invoke")
        if stream in self.nowhere:
            raise InvalidRequest(f"there is still no stream {stream!r}")
        return self._profile(stream)

    def _profile(self, stream: str) -> Profile:
        table = {"address": self.server.address + "/{streamId}", "framing": "sse", "allow_private": True}
        policy = stream.partition("-")[0]
        more: dict[str, Any] = {"overlap": policy} if policy in ("evicts", "forbids") else {}
        more |= {"reject_after": 2} if policy == "refuses" else {}
        return parse(stream, {**table, "overlap_s": 0.1, "resume": {"header": "Last-Event-ID"}, **more}, {})

    def _log(self, profile: Profile, who: Invocation, report: Report, blocked_ms: int) -> None:
        assert profile.name == who.stream_id
        assert blocked_ms >= 0
        assert report.progress is not None

    def _report(self, stream: str, _execution: str, outcome: Outcome) -> None:
        self.reported.append((stream, outcome.error))

    def keys(self, stream: str) -> list[int]:
        """Return the numbers of its stored events."""
        return sorted(int(key) for key in self.aws.items(EVENTS, stream))

    def lease(self, stream: str) -> dict[str, Any]:
        return self.aws.items(CONTROL, stream)["lease"]

    def wait_for_end(self) -> None:
        """Return once all functions have ended."""
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()


def play(peer: Peer) -> None:
    """Send the events after the cursor up to number 3, or behave as the stream's name says."""
    path = re.match(rb"GET /(\S+)", peer.request)
    cursor = re.search(rb"Last-Event-ID: (\d+)", peer.request, re.IGNORECASE)
    assert path is not None
    name, first = path[1].decode(), int(cursor[1]) + 1 if cursor else 1
    if name == "refuses":
        peer.send(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")
        return
    peer.send(UNTIL_CLOSE)
    if name == "resets":
        peer.send(numbered(first, first))
        peer.reset()
        return
    peer.send(numbered(first, 3) if first <= 3 else b": quiet\n\n")
    if name == "floods":
        while True:
            peer.send(b"id: %d\ndata: %d\n\n" % (first + 3, 10**2000))
            first += 1
    peer.wait_until_gone()


@contextmanager
def group(aws: Aws) -> Iterator[Group]:
    one = Group(aws)
    with serving(play) as one.server:
        yield one
        one.wait_for_end()
        one.client.close()


def test_each_stream_of_a_function_ends_by_itself(aws: Aws) -> None:
    """A stream that is refused, is reset, floods or has no profile does not disturb the others, which are stored.

    A stream that joins is connected beside them, streams that leave are closed, and the last to leave ends the group.
    """
    with group(aws) as one:
        one.unknown.add("nobody")
        one.nowhere.add("nobody")
        one.join("calm", "evicts-a", "forbids-b", "refuses", "resets", "floods", "nobody")
        one.start("r1")
        calm = ("calm", "evicts-a", "forbids-b")
        assert until(lambda: all(one.keys(stream) == [1, 2, 3] for stream in calm))
        assert until(lambda: len(one.keys("resets")) >= 2 and len(one.keys("floods")) > 100)
        assert until(lambda: one.lease("refuses").get("ending") == "StreamRejected")
        assert until(lambda: one.lease("nobody").get("ending") == "InvalidRequest")
        one.join("later")
        assert until(lambda: one.keys("later") == [1, 2, 3])
        assert [name for name, *_ in one.records.members().items()] == sorted([*calm, "resets", "floods", "later"])
        one.leave("floods", "calm")
        assert until(lambda: len(one.records.members()) == 4)
        assert one.lease("calm")["ending"] == "StreamEnded"
        assert "execution" not in one.lease("calm")
        assert one.lease("evicts-a")["execution"] == EXECUTION
        one.leave("evicts-a", "forbids-b", "resets", "later")
    assert one.ended["r1"].status == "stopped"
    assert sorted(one.reported) == [("nobody", "InvalidRequest"), ("refuses", "StreamRejected")]
    assert [heartbeat.is_ended for heartbeat in one.records.read().heartbeats.values()] == [True]


def test_a_rejected_stream_that_joins_again_gets_its_corrected_profile(aws: Aws) -> None:
    """A rejected stream that joins again is connected with its corrected profile; no other stream is reopened."""
    with group(aws) as one:
        one.wrong.add("corrected")
        one.join("calm", "corrected")
        one.start("r1")
        assert until(lambda: one.lease("corrected").get("ending") == "StreamRejected")
        assert one.asked == []
        one.join("corrected")
        assert until(lambda: one.keys("corrected") == [1, 2, 3])
        one.leave("calm", "corrected")
    assert (one.ended["r1"].status, one.asked) == ("stopped", ["corrected"])
    assert [peer.request.split()[1] for peer in one.server.peers][-1] == b"/corrected"


def test_a_stream_whose_profile_is_not_known_yet_is_not_rejected(aws: Aws) -> None:
    """The stream waits until the next function, which has its profile, connects it; if stopped meanwhile, it leaves."""
    with group(aws) as one:
        one.unknown |= {"new", "gone"}
        one.is_mute = True
        one.join("calm")
        one.start("r1")
        assert until(lambda: one.keys("calm") == [1, 2, 3])
        one.join("new", "gone")
        assert until(lambda: one.records.read().heartbeats["r1"].away == 2)
        one.leave("gone")
        assert until(lambda: set(one.records.members()) == {"calm", "new"})
        assert one.lease("gone")["ending"] == "StreamEnded"
        one.unknown.clear()
        one.start("r2")
        assert until(lambda: one.keys("new") == [1, 2, 3])
        assert until(lambda: "r1" in one.ended)
        one.leave("calm", "new")
    assert (one.ended["r1"].error, one.ended["r2"].status) == ("StreamTakenOver", "stopped")
    assert (sorted(one.asked), one.reported) == (["gone", "new"], [])


def test_a_second_function_takes_over(aws: Aws) -> None:
    """The second function takes over every stream; the first ends as taken over, and every event is stored."""
    with group(aws) as one:
        streams = [f"{policy}-{number}" for policy in ("tolerates", "evicts", "forbids") for number in range(2)]
        one.join(*streams)
        one.start("r1")
        assert until(lambda: all(one.keys(stream) == [1, 2, 3] for stream in streams))
        one.start("r2")
        assert until(lambda: "r1" in one.ended)
        assert one.ended["r1"].error == "StreamTakenOver"
        heartbeats = one.records.read().heartbeats
        assert (heartbeats["r1"].is_ended, heartbeats["r2"].is_ended) == (True, False)
        assert {one.lease(stream)["marked"] for stream in streams} == {"2/r2"}
        one.leave(*streams)
    assert one.ended["r2"].status == "stopped"
