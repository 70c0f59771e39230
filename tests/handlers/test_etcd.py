"""The profile of etcd with etcd itself: batches, transactions, compaction, quiet keys, restarts.

Each test runs with etcd's recorded answers, and with etcd if it is installed; `tests/handlers/etcd.py` says how.
"""

import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from handlers.profile.behaviour import Profile
from handlers.profile.parse import parse
from tests.handlers.aws import CONTROL, EVENTS, Aws
from tests.handlers.etcd import RECORDINGS, Gateway, Server, base64_of
from tests.handlers.lanes import Lane, start_lane
from tests.local.support import until

PROFILE = Path(__file__).parents[2] / "env" / "streams" / "etcd.toml"
PROGRAM = shutil.which("etcd")
STREAM, PREFIX = "etcd:k/a", "etcd:k/*"


@dataclass
class Stage:
    """etcd, and a stream of it."""

    aws: Aws
    etcd: Gateway
    stream_id: str = STREAM
    has_progress: bool = True

    def profile(self) -> Profile:
        """Return the shipped profile; it can be without progress reports."""
        text = PROFILE.read_text()
        if not self.has_progress:
            text = text.replace('"progress_notify": true', '"progress_notify": false')
        return parse("etcd", tomllib.loads(text), {"UPSTREAM_ETCD": self.etcd.address})

    def start(self) -> Lane:
        """Start an invocation, which makes one connection."""
        return start_lane(self.aws, self.profile(), self.stream_id)

    def changes(self) -> list[tuple[int, str]]:
        """Return the stored changes in order of arrival: their revisions and keys."""
        items = sorted(self.aws.items(EVENTS, self.stream_id).values(), key=lambda item: str(item["position"]))
        stored = [json.loads(item["data"])["kv"] for item in items]
        return [(int(kv["mod_revision"]), kv["key"]) for kv in stored]

    def revisions(self) -> list[int]:
        return [revision for revision, _ in self.changes()]

    def cursor(self) -> int:
        """Return the saved cursor, 0 if there is none."""
        return int(self.aws.store().read(self.stream_id).cursor or 0)

    def gaps(self) -> list[str]:
        """Return the state of each gap between two connections."""
        control = self.aws.items(CONTROL, self.stream_id)
        return [item["state"] for key, item in control.items() if re.fullmatch(r"gap#[0-9]+", key)]

    def stop(self, lane: Lane) -> None:
        """Stop the stream, and allow it to start again."""
        self.aws.stop(self.stream_id)
        assert lane.last_report.outcome.status == "stopped"
        self.aws.stop(self.stream_id, stop=False)


@pytest.fixture(params=["etcd", "recorded"] if PROGRAM else ["recorded"])
def stage(request: pytest.FixtureRequest, aws: Aws, tmp_path: Path) -> Iterator[Stage]:
    """Yield an empty etcd, or its recording."""
    server = Server(PROGRAM, tmp_path) if request.param == "etcd" and PROGRAM is not None else None
    name = request.node.originalname.removeprefix("test_")
    etcd = Gateway(RECORDINGS / f"{name}.json", server)
    yield Stage(aws, etcd)
    etcd.close()
    assert etcd.problems == []


def test_batches_and_transactions(stage: Stage) -> None:
    """Each change is stored once and in order: live, after an interruption, and read from the start again."""
    stage.stream_id = PREFIX
    first = stage.start()
    assert until(stage.cursor)
    before = stage.cursor()
    expected = []
    for number in range(3):
        expected += [(stage.etcd.put(f"k/{number}"), f"k/{number}")]
        together = stage.etcd.put_together("k/x", "other", "k/y", "k/z")
        expected += [(together, key) for key in ("k/x", "k/y", "k/z")]
        expected += [(stage.etcd.delete("k/x"), "k/x")]
    expected = [(revision, base64_of(key)) for revision, key in expected]
    assert until(lambda: len(stage.changes()) == len(expected))
    assert until(lambda: stage.cursor() >= expected[-1][0])
    stage.etcd.cut()
    assert first.last_report.outcome.error == "StreamDropped"

    for _ in range(3):
        together = stage.etcd.put_together("k/x", "k/y")
        expected += [(together, base64_of(key)) for key in ("k/x", "k/y")]
    second = stage.start()
    assert until(lambda: len(stage.changes()) == len(expected))
    assert until(lambda: stage.cursor() >= expected[-1][0])
    stage.stop(second)

    # From before the first change: etcd batches the same changes in another way, and none is new.
    stage.aws.put_control(stage.stream_id, "lease", cursor={"S": str(before)})
    third = stage.start()
    assert until(lambda: stage.cursor() >= expected[-1][0])
    stage.stop(third)
    progress = third.last_report.progress
    assert (progress.stored, progress.duplicates) == (0, len(expected))
    assert stage.changes() == expected
    assert stage.aws.losses(stage.stream_id) == []
    names = {item.get("name") for item in stage.aws.items(EVENTS, stage.stream_id).values()}
    assert names == {None, "DELETE"}


def test_compaction_while_away(stage: Stage) -> None:
    """After a compaction the stream continues from the revision that etcd's cancel names; the rest is one loss."""
    first = stage.start()
    assert until(stage.cursor)
    stored = [stage.etcd.put("k/a") for _ in range(3)]
    assert until(lambda: stage.cursor() >= stored[-1])
    stage.etcd.cut()
    assert first.last_report.outcome.error == "StreamDropped"
    away = [stage.etcd.put("k/a") for _ in range(8)]
    stage.etcd.compact(away[4])

    refused = stage.start().last_report
    assert (refused.outcome.error, refused.progress.ended_by) == ("StreamDropped", "cursor_expired")
    assert (stage.cursor(), stage.aws.losses(stage.stream_id)) == (away[4], ["cursor_expired"])
    again = stage.start()
    stored += away[4:]
    assert until(lambda: stage.revisions() == stored), stage.revisions()
    stage.stop(again)
    assert again.last_report.progress.resumed
    assert stage.aws.losses(stage.stream_id) == ["cursor_expired"]


def test_a_deletion_at_the_compacted_revision(stage: Stage) -> None:
    """A deletion at the compacted revision is recorded as a loss, because etcd forgets it silently."""
    stage.has_progress = False
    first = stage.start()
    assert until(stage.cursor)
    stored = stage.etcd.put("k/a")
    assert until(lambda: stage.cursor() >= stored)
    stage.etcd.cut()
    assert first.last_report.outcome.error == "StreamDropped"
    deleted = stage.etcd.delete("k/a")
    stage.etcd.compact(deleted)

    assert (stage.start().last_report.progress.ended_by, stage.cursor()) == ("cursor_expired", deleted)
    assert stage.aws.losses(stage.stream_id) == ["cursor_expired"]
    again = stage.start()
    changed = stage.etcd.put("k/a")
    assert until(lambda: stage.revisions()[-1:] == [changed])
    stage.stop(again)
    assert stage.aws.losses(stage.stream_id) == ["cursor_expired"]


def test_a_quiet_key_and_a_compaction(stage: Stage) -> None:
    """Progress reports move the cursor of an unchanged key, so compacting other keys' changes loses nothing."""
    first = stage.start()
    # The answer that made the watch gives a cursor: the next connection requests what the first does not see.
    assert until(stage.cursor)
    others = [stage.etcd.put("other") for _ in range(5)]
    assert until(lambda: stage.cursor() >= others[-1])
    stage.etcd.cut()
    assert first.last_report.outcome.error == "StreamDropped"
    stage.etcd.compact(others[-1])
    changed = stage.etcd.put("k/a")
    again = stage.start()
    assert until(lambda: stage.revisions() == [changed])
    # No event follows, so it is not known yet whether that was all.
    assert until(stage.gaps) == ["open"]
    stage.stop(again)
    assert stage.aws.losses(stage.stream_id) == []


def test_a_first_watch_that_breaks_before_any_change(stage: Stage) -> None:
    """A watch's first answer names its beginning, so the next connection gets the changes made in between."""
    stage.has_progress = False
    first = stage.start()
    assert until(stage.cursor)
    stage.etcd.cut()
    assert first.last_report.outcome.error == "StreamDropped"
    changed = stage.etcd.put("k/a")
    again = stage.start()
    assert until(lambda: stage.revisions() == [changed])
    stage.stop(again)
    assert again.last_report.progress.resumed


def test_a_restart(stage: Stage) -> None:
    """After etcd is killed and restarted on its data, each change is stored once, also a change made in between."""
    first = stage.start()
    assert until(stage.cursor)
    stored = [stage.etcd.put("k/a") for _ in range(3)]
    assert until(lambda: stage.revisions() == stored)
    stage.etcd.restart()
    assert first.last_report.outcome.error == "StreamDropped"
    stored += [stage.etcd.put("k/a") for _ in range(3)]
    again = stage.start()
    stored += [stage.etcd.put("k/a")]
    assert until(lambda: stage.revisions() == stored)
    # No event follows, so it is not known yet whether that was all.
    assert until(stage.gaps) == ["open"]
    stage.stop(again)
    assert stage.aws.losses(stage.stream_id) == []
