"""`streamkeeper backup`, `restore` and `move` between stages as the embedded AWS plays them."""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from handlers.connection.inputs import LOG, Layout, Written
from handlers.connection.opening_steps import Replacement
from handlers.deliver.table_records import by_stream
from handlers.errors import StoreUnavailable
from handlers.run.refresh_tokens import RefreshTokens
from handlers.store.control_record import to_record
from handlers.store.event_items import StoragePolicy
from handlers.store.event_reader import SETTLES_MS, EventReader
from handlers.store.overflow import Objects
from handlers.store.segment_reader import anchor, log_from
from handlers.store.typed_values import text
from local.backup import archive, reading, taking, together
from local.backup.archive import Archived, Files, files_at
from local.backup.moving import Moving
from local.backup.reading import NotRestored, Tables
from local.backup.stage_places import Place
from local.backup.taking import Taking
from local.backup.writing import Restoring
from local.cli import INTERRUPTED, main
from local.user_error import UserError
from tests.handlers.aws import Counted
from tests.handlers.store.events import an_event, noise
from tests.local.deployed_stage import Deployed, running

# Attributes that a copy does not have, or has of its own.
OF_A_COPY = ("execution", "holder", "expires_at_ms", "restored_from", "stop", "stop_at", "released")
PLAIN, SPREAD, LOGGED, UNORDERED = "demo", "demo:spread", "demo:lög", "demo:none"


def fill(stage: Deployed) -> None:
    """Writes four running streams: with a large body, with three partitions, with a log, and without an order."""
    store = stage.store(events_bucket=stage.bucket, s3=lambda: stage.aws.s3)
    for number, (stream_id, policy, more) in enumerate(
        [
            (PLAIN, StoragePolicy(), {}),
            (SPREAD, StoragePolicy(3), {"partitions": {"N": "3"}}),
            (UNORDERED, StoragePolicy(order="none"), {"order": {"S": "none"}}),
        ]
    ):
        stage.run(stream_id, 2 + number, **more)
        store.write(stream_id, 1, 0, [an_event(f"{one}", f"body {one}") for one in range(7)], policy)
    store.write(PLAIN, 2, 7, [an_event("large", noise(500_000))])
    stage.run(LOGGED, 3, partitions={"N": str(LOG)})
    stage.put(LOGGED, "gap#000000000002", from_ms={"N": "1"}, to_ms={"N": "2"}, cause={"S": "x"}, state={"S": "open"})
    for fence in (2, 3):
        log = store.log(LOGGED, fence, lambda: 5, window_ms=900_000, keep_days=0)
        log.write(0, [an_event(f"{fence}/{one}", "b") for one in range(4)])


def read(stage: Deployed, stream_id: str, now_ms: int = 10) -> list[tuple[str, Any]]:
    """Returns the events of a stream as a reader gets them."""
    record = to_record(stage.items()["control"][stream_id, "lease"])
    fetch = Objects(lambda: stage.aws.s3, stage.bucket).find
    reader = EventReader(stage.aws.dynamodb, stage.events_table, fetch)
    entries = reader.entries(stream_id, record.layout, now_ms, "", 99)
    return [(entry.position, entry.event and entry.event.data) for entry in entries]


def typed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    """Runs the command; returns the exit status, the printed JSON, and standard error."""
    status = main([*arguments, "--json"])
    said = capsys.readouterr()
    return status, json.loads(said.out) if said.out else None, said.err


@pytest.mark.parametrize("where", ["folder", pytest.param("bucket", marks=pytest.mark.long)])
def test_a_backup_restores_every_record_of_every_layout(
    here: Deployed, there: Deployed, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events, ledger, cursor and large bodies are the same; no stream runs there, and no sink gets restored events."""
    fill(here)
    RefreshTokens(here.aws.dynamodb, here.control_table).write("ab", Replacement("r7", 1))
    to = str(tmp_path / "backup") if where == "folder" else f"s3://{here.bucket}/backups/{tmp_path.name}"
    status, manifest, _ = typed(capsys, "backup", "--stage", "here", "--to", to)
    assert (status, manifest["streams"]) == (0, 4)
    assert {name: manifest["total"][name] for name in ("events", "gaps", "objects")} == {
        "events": 3 * 7 + 1 + 8, "gaps": 1, "objects": 1,
    }  # fmt: skip
    status, done, wrong = typed(capsys, "restore", "--stage", "there", "--from", to)
    assert (status, done["refused"], wrong) == (0, 0, "")
    for stream_id in (PLAIN, SPREAD, UNORDERED, LOGGED):
        assert read(there, stream_id) == read(here, stream_id) != []
    before, after = here.items(), there.items()
    # A copy of it would be void at its next use.
    assert before["control"].pop(("#", "refresh-token#ab"))["refresh_token"] == {"S": "r7"}
    assert before["control"].keys() == after["control"].keys()
    for key, item in after["control"].items():
        assert {name: value for name, value in item.items() if name not in OF_A_COPY} == {
            name: value for name, value in before["control"][key].items() if name not in OF_A_COPY
        }
    lease = after["control"][PLAIN, "lease"]
    assert "execution" not in lease
    assert (lease["stop"], lease["released"], "stop_since" in lease) == ({"BOOL": True}, {"N": "2"}, False)
    records = [
        {"eventName": "INSERT", "dynamodb": {"NewImage": item, "SequenceNumber": "1"}}
        for item in after["events"].values()
    ]
    assert by_stream(records) == {}
    assert typed(capsys, "restore", "--stage", "there", "--from", to)[1]["streams"][0]["was_there"]
    assert there.items() == after
    there.put(PLAIN, "lease", **lease, stop_since={"S": "2026-01-02T00:00:00.000Z"})
    again = typed(capsys, "restore", "--stage", "there", "--from", to, "--start", "--match", PLAIN)[1]["streams"]
    assert [(one["was_there"], one["started"]) for one in again] == [(True, False)], "somebody has stopped it since"


class Killed(Exception):
    """Ends a try like SIGKILL: nothing that would follow is done."""


def place(stage: Deployed, dynamodb: Any = None) -> Place:
    """Returns the stage in the commands' form; `dynamodb` replaces its client. It starts no execution."""
    aws = stage.aws
    objects = Objects(lambda: aws.s3, stage.bucket)
    client = dynamodb or aws.dynamodb
    return Place(stage.stage, client, stage.control_table, stage.events_table, objects, aws.states, "")


def killed_at(stage: Deployed, last: int) -> Counted:
    """Returns a client that raises Killed in place of its request number `last`."""

    def before(_name: str, _parameters: dict[str, Any]) -> None:
        if len(client.requests) == last:
            raise Killed

    client = Counted(stage.aws.dynamodb, before)
    return client


def take(stage: Deployed, folder: Path, dynamodb: Any = None) -> Any:
    """Backs up the stream `demo` and returns its summary."""
    return Taking(Tables(place(stage, dynamodb)), files_at(str(folder)), lambda: None).take(PLAIN)


def copied(here: Deployed, there: Deployed, dynamodb: Any = None, **more: bool) -> Any:
    """Copies the stream `demo` from one stage to the other and returns the result."""
    restoring = Restoring(place(there, dynamodb), "a test", lambda: None, **more)
    return restoring.restore(Tables(place(here)), PLAIN, ran=True)


def test_a_backup_that_was_killed_anywhere_goes_on(
    here: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever request was the last, the next try has each event once, and counts none as finished before."""
    monkeypatch.setattr(taking, "PART_ITEMS", 2)
    monkeypatch.setattr(reading, "PAGE_ITEMS", 2)
    here.run(PLAIN, 2)
    here.store().write(PLAIN, 1, 0, [an_event(str(one)) for one in range(5)])
    for last in range(5):
        folder = tmp_path / str(last)
        with pytest.raises(Killed):
            take(here, folder, killed_at(here, last))
        assert not (folder / "streams/demo/stream.json").exists()
        summary = take(here, folder)
        assert (summary["events"], summary["connections"]) == (5, 1)
        parts = [archive.unpacked(path.read_bytes()) for path in sorted(folder.rglob("events-*"))]
        assert [item["SK"]["S"] for part in parts for item in part] == ["0", "1", "2", "3", "4"]
        assert take(here, folder, killed_at(here, 0)) == summary


@pytest.mark.parametrize("where", ["folder", "bucket"])
@pytest.mark.parametrize("last", range(3))
def test_two_backups_at_once_into_one_place_spoil_nothing(
    here: Deployed, there: Deployed, where: str, last: int, tmp_path: Path
) -> None:
    """The later command leaves the other's files as they are and is refused, wherever events come between the two."""
    here.run(PLAIN, 2)
    here.store().write(PLAIN, 1, 0, [an_event("1")])
    if where == "bucket":
        region = here.aws.s3.meta.region_name
        here.aws.s3.create_bucket(Bucket=f"vault{last}", CreateBucketConfiguration={"LocationConstraint": region})
    files = files_at(str(tmp_path) if where == "folder" else f"s3://vault{last}/of/friday")
    first, summaries = Taking(Tables(place(here)), files, lambda: None), list[Any]()

    def other() -> None:
        summaries.append(first.take(PLAIN))
        here.store().write(PLAIN, 1, 0, [an_event("2")])
        here.run(PLAIN, 3)

    def before(_name: str, _parameters: dict[str, Any]) -> None:
        if len(client.requests) == last:
            pool.submit(other).result()

    client = Counted(here.aws.dynamodb, before)
    begun = first.begun("here", [], [PLAIN], "now")
    refused = pytest.raises(UserError, match=r"Another command writes the backup at \S+: let it finish")
    # In a thread of its own, so that no request of the other command counts as one that this one's reader makes.
    with ThreadPoolExecutor(1) as pool, refused:
        Taking(Tables(place(here, client)), files, lambda: None).take(PLAIN)
    first.finish(begun, "end", summaries)
    assert Restoring(place(there), "it", lambda: None).restore(Archived(files), PLAIN, ran=True).events == 1


def test_an_event_that_has_expired_is_left_out(here: Deployed, tmp_path: Path) -> None:
    """DynamoDB deletes it days later than the bucket deletes its body, without which no backup would ever finish."""
    store = here.store(events_bucket=here.bucket, s3=lambda: here.aws.s3)
    here.run(PLAIN, 2)
    store.write(PLAIN, 1, 0, [an_event("old", noise(500_000)), an_event("small")], StoragePolicy(keep_days=1))
    store.write(PLAIN, 1, 2, [an_event("kept")])
    (body,) = {text(item, "object") for item in here.items()["events"].values()} - {None}
    here.aws.s3.delete_object(Bucket=here.bucket, Key=body)
    assert {name: take(here, tmp_path)[name] for name in ("events", "objects")} == {"events": 1, "objects": 0}


def test_a_restore_that_was_killed_anywhere_goes_on(here: Deployed, there: Deployed) -> None:
    """No lease exists before the last request, so nothing starts half of a stream; then everything is there once."""
    here.run(PLAIN, 2)
    here.store().write(PLAIN, 1, 0, [an_event(str(one)) for one in range(30)])
    for last in range(1, 100):
        client = killed_at(there, last)
        try:
            copied(here, there, client)
        except Killed:
            assert (PLAIN, "lease") not in there.items()["control"]
        else:
            break
        restored = copied(here, there)
        assert (restored.events, restored.kept) == (30, 0)
        assert there.items()["events"].keys() == here.items()["events"].keys()
        there.clear()
    assert last == 6, client.requests


def test_what_is_there_is_never_replaced_and_refused_by_name(here: Deployed, there: Deployed) -> None:
    """A running stream, a newer record, another stream, another log, another layout are refused; events stay."""
    here.run(PLAIN, 2)
    here.store().write(PLAIN, 1, 0, [an_event(str(one)) for one in range(3)])
    there.store().write(PLAIN, 1, 0, [an_event("1", "another"), an_event("9")])

    def refused(words: str) -> None:
        before = there.items()
        with pytest.raises(NotRestored, match=words):
            copied(here, there)
        assert there.items() == before

    there.run(PLAIN, 3)
    refused("newer .connection 3, here 2.: --replace")
    there.run(PLAIN, 2, live={"M": {"fence": {"N": "2"}, "seen_ms": {"N": "1"}, "request_id": {"S": "other"}}})
    refused("another stream with this id")
    there.run(PLAIN, 1, partitions={"N": "4"})
    refused("in another form")
    there.run(PLAIN, 1, execution={"S": running(there.aws)})
    refused("it runs at there")
    there.run(PLAIN, 1)
    restored = copied(here, there)
    assert (restored.events, restored.kept) == (3, 1)
    events = there.items()["events"]
    assert [events[PLAIN, key]["data"]["S"] for key in ("0", "1", "9")] == ["a", "another", "a"]
    for stage, body in ((here, "a"), (there, "other")):
        stage.clear()
        stage.run(PLAIN, 2, partitions={"N": str(LOG)})
        log = stage.store().log(PLAIN, 2, lambda: 5, window_ms=900_000, keep_days=0)
        for number in range(3):
            log.write(number, [an_event(f"{number}", body)])
    refused("another log with this id")


def test_a_newer_record_is_set_back_where_the_user_says_so(here: Deployed, there: Deployed) -> None:
    """It resumes from the older cursor, vouches for nothing since, and uses no fencing token twice."""
    here.run(PLAIN, 2)
    there.run(PLAIN, 5)
    there.put(PLAIN, "gap#000000000004", from_ms={"N": "1"}, to_ms={"N": "2"}, cause={"S": "x"}, state={"S": "open"})
    copied(here, there, replace=True)
    control = there.items()["control"]
    assert sorted(key for _, key in control) == ["connection#000000000001", "lease"]
    record = to_record(control[PLAIN, "lease"])
    assert (record.cursor, record.lease.fence, record.lease.released_token) == ("c2", 5, 2)
    assert record.live is not None
    assert record.live["fence"] == {"N": "2"}


@pytest.mark.parametrize("was_there", [False, True])
def test_what_is_started_during_a_restore_stays(here: Deployed, there: Deployed, was_there: bool) -> None:
    """The lease is written last, and only if it is as it was when the restore began."""
    here.run(PLAIN, 2)
    if was_there:
        there.run(PLAIN, 1)

    def before(name: str, _parameters: dict[str, Any]) -> None:
        if name == "put_item":
            there.run(PLAIN, 1, generation={"N": "7"})

    with pytest.raises(NotRestored, match="it was started or restored at there meanwhile: run the command again"):
        copied(here, there, Counted(there.aws.dynamodb, before))
    assert there.items()["control"][PLAIN, "lease"]["generation"] == {"N": "7"}


def test_a_copy_that_has_run_since_is_set_back_again(here: Deployed, there: Deployed) -> None:
    """A table may be lost twice. A copy that never ran has nothing to do, nor has one that runs."""
    here.run(PLAIN, 2)
    here.store().write(PLAIN, 1, 0, [an_event("1")])
    copied(here, there)
    assert copied(here, there, replace=True).was_there
    there.aws.dynamodb.delete_item(TableName=there.events_table, Key={"PK": {"S": PLAIN}, "SK": {"S": "1"}})
    since: dict[str, Any] = {"restored_from": {"S": "a test"}, "generation": {"N": "2"}}
    there.run(PLAIN, 3, **since, execution={"S": running(there.aws)})
    assert copied(here, there, replace=True).was_there
    there.run(PLAIN, 3, **since)
    assert copied(here, there).was_there
    assert copied(here, there, replace=True).events == 1
    assert (PLAIN, "1") in there.items()["events"]


def test_no_stream_is_started_at_named_tables(
    here: Deployed, there: Deployed, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says so before it stops or copies one. One that is named twice is moved once."""
    here.run(PLAIN, 2)
    tables, before = f"there/{there.events_table},{there.control_table}", here.items()
    said = f"streamkeeper: {tables} names tables, where no stream can be started: name a stage, or "
    status, _, wrong = typed(capsys, "move", PLAIN, "--from", "here", "--to", tables)
    assert (status, wrong) == (2, said + "use `restore`.\n")
    status, _, wrong = typed(capsys, "restore", "--from", "here", "--stage", tables, "--start")
    assert (status, wrong) == (2, said + "leave out --start.\n")
    assert here.items() == before
    here.run(PLAIN, 2, stop={"BOOL": True})
    status, moved, _ = typed(capsys, "move", PLAIN, PLAIN, "--from", "here", "--to", "there")
    assert (status, [(one["stream"], one["was_there"]) for one in moved["streams"]]) == (0, [(PLAIN, False)])


def test_tables_that_were_swapped_are_refused(
    here: Deployed, there: Deployed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events were written into the control table, or the command ended with a traceback."""
    fill(here)
    words = "of control tables: write STAGE/EVENTS,CONTROL, and restore a table with its indexes."
    for tables in ((there.control_table, there.events_table), (there.events_table, there.events_table)):
        swapped = "there/{},{}".format(*tables)
        for arguments in (
            ("restore", "--from", "here", "--stage", swapped),
            ("restore", "--from", swapped, "--stage", "here"),
            ("backup", "--stage", swapped, "--to", str(tmp_path / "backup")),
        ):
            status, _, wrong = typed(capsys, *arguments)
            assert (status, words in wrong) == (2, True), wrong
    assert there.items() == {"events": {}, "control": {}}

    def refuse(_name: str, _parameters: dict[str, Any]) -> None:
        # As a table without the index does.
        raise ClientError({"Error": {"Code": "ValidationException"}}, "Query")

    with pytest.raises(UserError, match="The streams of here cannot be listed: AWS refused Query"):
        Tables(place(here, Counted(here.aws.dynamodb, refuse))).stream_ids()


def test_a_stream_that_went_over_to_a_log_is_copied_whole(here: Deployed, there: Deployed) -> None:
    """Its items, its log and the place where the log begins are copied, so the copy reads both as the original does."""
    went = {"partitions": {"N": str(LOG)}, "item_partitions": {"N": "3"}, "log_since_ms": {"N": "5"}}
    here.run(PLAIN, 2, **went)
    store, layout = here.store(), Layout(LOG, "index", 3, 5)
    store.write(PLAIN, 1, 0, [an_event(f"{one}") for one in range(4)], StoragePolicy(3))
    here.aws.dynamodb.put_item(TableName=here.events_table, Item=anchor(PLAIN, log_from(layout))[0])
    more: dict[str, Any] = {"window_ms": 900_000, "keep_days": 0, "layout": layout}
    assert store.log(PLAIN, 2, lambda: 6, **more).write(4, [an_event(f"{one}") for one in range(2, 8)]).stored == 4
    assert copied(here, there).events == 8
    later_ms = 5 + SETTLES_MS
    assert read(there, PLAIN, later_ms) == read(here, PLAIN, later_ms)
    assert len(read(there, PLAIN, later_ms)) == 8
    again = there.store().log(PLAIN, 3, lambda: 7, **more)
    assert again.write(0, [an_event(f"{one}") for one in range(9)]) == Written(1, 8)


def test_a_damaged_backup_is_refused_by_the_name_of_its_file(
    here: Deployed, there: Deployed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of a damaged file is used, and other streams are restored. An unfinished backup has no manifest, and a
    finished one is not overwritten.
    """
    for stream_id in (PLAIN, SPREAD):
        here.run(stream_id, 2)
        here.store().write(stream_id, 1, 0, [an_event("1")])
    folder = tmp_path / "backup"
    arguments = ("backup", "--stage", "here", "--to", str(folder))
    assert typed(capsys, *arguments)[0] == 0
    assert typed(capsys, *arguments)[::2] == (
        2, "streamkeeper: --to names a finished backup: name another folder for a new one.\n",
    )  # fmt: skip
    part = folder / "streams/demo/events-000001.jsonl.gz"
    part.write_bytes(part.read_bytes()[:-1])
    status, done, wrong = typed(capsys, "restore", "--stage", "there", "--from", str(folder))
    assert (status, [one["stream"] for one in done["streams"]], done["refused"]) == (1, [SPREAD], 1)
    assert wrong == "demo: its file events-000001.jsonl.gz is damaged in the backup: restore it from another one.\n"
    assert {stream_id for table in there.items().values() for stream_id, _ in table} == {SPREAD}
    (folder / "manifest.json").unlink()
    assert "backup/ has an unfinished backup" in typed(capsys, "restore", "--stage", "there", "--from", str(folder))[2]
    (folder / "begun.json").unlink()
    assert "manifest.json cannot be read" in typed(capsys, "restore", "--stage", "there", "--from", str(folder))[2]


def test_ctrl_c_says_how_to_go_on(
    here: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Finished streams stay finished, no further one begins, and the same command completes the backup."""
    for number in range(4):
        here.run(f"demo:{number}", 2)
    monkeypatch.setattr(together, "THREADS", 1)
    add, arguments = Files.add, ("backup", "--stage", "here", "--to", str(tmp_path / "backup"))

    def interrupted(files: Files, name: str, content: bytes) -> None:
        if name.startswith("streams/demo:3/"):
            raise KeyboardInterrupt
        add(files, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "add", interrupted)
        status, _, wrong = typed(capsys, *arguments)
    assert status == INTERRUPTED
    said = r"streamkeeper: [0-3] of 4 streams done; run the same command for the others.\n"
    assert re.fullmatch(said, wrong), wrong
    assert typed(capsys, *arguments, "--match", "demo:*")[::2] == (
        2,
        "streamkeeper: --to names an unfinished backup of here: finish that one, or name another folder.\n",
    )
    status, manifest, _ = typed(capsys, *arguments)
    assert (status, manifest["streams"]) == (0, 4)


def test_a_large_body_that_is_gone_takes_nothing_else_with_it(
    here: Deployed, there: Deployed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A backup never ended, and a move left the stream stopped at both places; both count the body and go on.

    A body that is gone in the backup alone is damage. One that S3 refuses, as another bucket does, is not gone.
    """
    fill(here)
    elsewhere = replace(place(here), objects=Objects(lambda: here.aws.s3, "no-such-bucket"))
    with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
        Taking(Tables(elsewhere), files_at(str(tmp_path)), lambda: None).take(PLAIN)
    before, folder = read(here, PLAIN), str(tmp_path / "backup")
    for name in ("whole", "less"):
        (key,) = (one["Key"] for one in here.aws.s3.list_objects_v2(Bucket=here.bucket).get("Contents", ()))
        if name == "less":
            here.aws.s3.delete_object(Bucket=here.bucket, Key=key)
        status, manifest, _ = typed(capsys, "backup", "--stage", "here", "--to", folder + name)
        assert (status, manifest["total"]["gone"]) == (0, int(name == "less"))
    (body,) = (tmp_path / "backupwhole").rglob("objects/*")
    body.unlink()
    status, told, wrong = typed(capsys, "restore", "--from", f"{folder}whole", "--stage", "there")
    assert (status, len(told["streams"]), wrong) == (1, 3, f"{PLAIN}: its body {body.name} is damaged in the backup: "
                                                     "restore it from another one.\n")  # fmt: skip
    there.clear()
    there.aws.s3.delete_object(Bucket=there.bucket, Key=key)
    found = typed(capsys, "restore", "--from", f"{folder}less", "--stage", "there", "--match", PLAIN)[1]["streams"]
    assert [(one["events"], one["objects"], one["gone"]) for one in found] == [(8, 0, 1)]
    assert read(there, PLAIN) == read(here, PLAIN) != before
    there.clear()
    moved, _ = Moving(place(here), place(there), lambda: None, lambda _: None).move(PLAIN)
    assert (moved.events, moved.objects, moved.gone, read(there, PLAIN)) == (8, 0, 1, read(here, PLAIN))


def test_a_pattern_takes_a_bracket_as_it_is(here: Deployed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in a fleet's document: `demo:[a]` is a stream, where `move --match` took `demo:a`."""
    for name in ("demo:[a]", "demo:a"):
        here.run(name, 2)
    for number, pattern in enumerate(("demo:[a]", "demo:[*]")):
        folder = str(tmp_path / f"{number}")
        assert typed(capsys, "backup", "--stage", "here", "--to", folder, "--match", pattern)[1]["streams"] == 1
        assert Archived(files_at(folder)).stream_ids() == ["demo:[a]"]


def test_a_stream_that_was_moved_goes_back(here: Deployed, there: Deployed) -> None:
    """The older state there is replaced by the one that continues it, and each event is there once."""
    here.run(PLAIN, 2)
    here.store().write(PLAIN, 1, 0, [an_event("1")])
    Moving(place(here), place(there), lambda: None, lambda _: None).move(PLAIN)
    there.run(PLAIN, 3)
    there.store().write(PLAIN, 3, 0, [an_event("2")])
    restored, _ = Moving(place(there), place(here), lambda: None, lambda _: None).move(PLAIN)
    assert (restored.events, restored.kept, restored.was_there) == (2, 0, False)
    control = here.items()["control"]
    assert sorted(key for _, key in here.items()["events"]) == ["1", "2"]
    assert to_record(control[PLAIN, "lease"]).cursor == "c3"
    assert (PLAIN, "connection#000000000002") in control


def test_a_copy_of_a_running_stream_has_all_that_its_cursor_has_passed(here: Deployed, there: Deployed) -> None:
    """While it is copied, events come on two more connections, and the cursor is saved; later events may be left out.

    The cursor of the copy names the copy's newest event, or an older one.
    """
    stored = 0

    def before(_name: str, _parameters: dict[str, Any]) -> None:
        nonlocal stored
        stored += 1
        here.store().write(PLAIN, 1, 0, [an_event(f"{stored:03d}")])
        here.run(PLAIN, 2 * stored, cursor={"S": f"{stored:03d}"})

    before("", {})
    moving = Tables(place(here, Counted(here.aws.dynamodb, before)))
    Restoring(place(there), "a test", lambda: None).restore(moving, PLAIN, ran=True)
    copy = there.items()
    lease = copy["control"][PLAIN, "lease"]
    assert lease["cursor"]["S"] in {key for _, key in copy["events"]}
    tokens = [int(key.split("#")[1]) for _, key in copy["control"] if key != "lease"]
    assert max(tokens) <= int(lease["fence"]["N"]) < 2 * stored


def test_a_move_that_was_killed_anywhere_goes_on(here: Deployed, there: Deployed) -> None:
    """It stops the stream and copies once nobody holds it; at the new place the time between is a gap, not a stop."""
    for last in range(40):
        here.run(PLAIN, 2)
        here.store().write(PLAIN, 1, 0, [an_event("1")])
        client, lines = killed_at(here, last), list[str]()
        try:
            Moving(place(here, client), place(there), lambda: None, lines.append).move(PLAIN)
        except Killed:
            assert (PLAIN, "lease") not in there.items()["control"]
        else:
            break
        Moving(place(here), place(there), lambda: None, lines.append).move(PLAIN)
        left, found = here.items()["control"][PLAIN, "lease"], there.items()["control"][PLAIN, "lease"]
        assert left["stop"] == found["stop"] == {"BOOL": True}
        assert (found["stop_at"], "stop_since" in found) == (left["stop_at"], False)
        assert left["moved_to"]["S"] == f"there {left['stop_at']['S']}"
        assert Moving(place(here), place(there), lambda: None, lines.append).move(PLAIN)[0].was_there
        there.clear()
    assert last == 7, client.requests


def test_of_two_moves_at_once_to_two_places_one_starts_the_stream(here: Deployed, there: Deployed) -> None:
    """Whichever request of the one is late, exactly one copy ran; the other command is refused with the place."""

    def refused(late: int) -> list[str] | None:
        """What the refused commands print if one moves all before the other's request number `late`, if it makes it."""
        found = list[str]()

        def move(name: str, dynamodb: Any = None) -> None:
            target = replace(place(there), name=name)
            try:
                Moving(place(here, dynamodb), target, lambda: None, lambda _: None).move(PLAIN)
            except NotRestored as refusal:
                found.append(str(refusal))

        def before(_name: str, _parameters: dict[str, Any]) -> None:
            if len(client.requests) == late:
                # In a thread of its own: the check of permissions reads the stack.
                other = threading.Thread(target=move, args=("east",))
                other.start()
                other.join()

        client = Counted(here.aws.dynamodb, before)
        move("west", client)
        return found if len(client.requests) > late else None

    for late in range(1, 40):
        there.clear()
        here.run(PLAIN, 2)
        if (lines := refused(late)) is None:
            break
        at = here.items()["control"][PLAIN, "lease"]["stop_at"]["S"]
        words = f"since {at}: run that move again, or start the stream at here first"
        assert lines in [[f"it is being moved to {name} {words}"] for name in ("east", "west")]
    assert late == 7
