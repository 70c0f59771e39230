"""`streamkeeper backup` at a stage as the embedded AWS plays it, and what `restore` makes of it."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from handlers.connection.opening_steps import Replacement
from handlers.deliver.table_records import group_by_stream
from handlers.errors import StoreUnavailable
from handlers.run.refresh_tokens import RefreshTokens
from handlers.store.event_items import StoragePolicy
from handlers.store.overflow import Objects
from handlers.store.typed_values import read_text
from local.backup import archive, backup_writer, command, stream_source
from local.backup.archive import Files, FinishedBackup, files_at
from local.backup.backup_writer import BackupWriter
from local.backup.stream_restore import StreamRestore
from local.backup.stream_source import Tables
from local.cli import INTERRUPTED
from local.terminal import UserError
from tests.handlers.aws import CountingClient
from tests.handlers.context import Killed
from tests.handlers.store.events import an_event, noise
from tests.local.backup.conftest import Typed
from tests.local.backup.copies import (
    LOGGED,
    OF_A_COPY,
    PLAIN,
    SPREAD,
    UNORDERED,
    back_up,
    client_killed_at,
    move_demo,
    place_of,
    read_events,
    write_demo,
    write_streams,
)
from tests.local.deployed_stage import Deployed


@pytest.mark.parametrize("where", ["folder", pytest.param("bucket", marks=pytest.mark.long)])
def test_a_backup_restores_every_record_of_every_layout(
    here: Deployed, there: Deployed, where: str, tmp_path: Path, typed: Typed
) -> None:
    """Events, ledger, cursor and large bodies are restored; no restored stream runs, and no sink gets its events."""
    write_streams(here)
    RefreshTokens(here.aws.dynamodb, here.control_table).write("ab", Replacement("r7", 1))
    to = str(tmp_path / "backup") if where == "folder" else f"s3://{here.bucket}/backups/{tmp_path.name}"
    status, manifest, _ = typed("backup", "--stage", "here", "--to", to)
    assert (status, manifest["streams"]) == (0, 4)
    assert {name: manifest["total"][name] for name in ("events", "gaps", "objects")} == {
        "events": 3 * 7 + 1 + 8, "gaps": 1, "objects": 1,
    }  # fmt: skip
    status, done, wrong = typed("restore", "--stage", "there", "--from", to)
    assert (status, done["refused"], wrong) == (0, 0, "")
    for stream_id in (PLAIN, SPREAD, UNORDERED, LOGGED):
        assert read_events(there, stream_id) == read_events(here, stream_id) != []
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
    assert group_by_stream(records) == {}
    assert typed("restore", "--stage", "there", "--from", to)[1]["streams"][0]["was_there"]
    assert there.items() == after
    there.put(PLAIN, "lease", **lease, stop_since={"S": "2026-01-02T00:00:00.000Z"})
    again = typed("restore", "--stage", "there", "--from", to, "--start", "--match", PLAIN)[1]["streams"]
    assert [(one["was_there"], one["started"]) for one in again] == [(True, False)], "somebody has stopped it since"


def test_a_backup_that_was_killed_at_any_request_can_be_completed(
    here: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill at any request, the next try has each event once. No stream counts as finished before."""
    monkeypatch.setattr(backup_writer, "PART_ITEMS", 2)
    monkeypatch.setattr(stream_source, "PAGE_ITEMS", 2)
    write_demo(here, *"01234")
    for last in range(5):
        folder = tmp_path / str(last)
        with pytest.raises(Killed):
            back_up(here, folder, client_killed_at(here, last))
        assert not (folder / "streams/demo/stream.json").exists()
        summary = back_up(here, folder)
        assert (summary["events"], summary["connections"]) == (5, 1)
        parts = [archive.unpack_items(path.read_bytes()) for path in sorted(folder.rglob("events-*"))]
        assert [item["SK"]["S"] for part in parts for item in part] == ["0", "1", "2", "3", "4"]
        assert back_up(here, folder, client_killed_at(here, 0)) == summary


@pytest.mark.parametrize("where", ["folder", "bucket"])
@pytest.mark.parametrize("last", range(3))
def test_two_backups_at_once_into_one_place_do_not_mix(
    here: Deployed, there: Deployed, where: str, last: int, tmp_path: Path
) -> None:
    """The later command is refused and leaves the other's files as they are, whenever events come between the two."""
    write_demo(here, "1")
    if where == "bucket":
        region = here.aws.s3.meta.region_name
        here.aws.s3.create_bucket(Bucket=f"vault{last}", CreateBucketConfiguration={"LocationConstraint": region})
    files = files_at(str(tmp_path) if where == "folder" else f"s3://vault{last}/of/friday")
    first, summaries = BackupWriter(Tables(place_of(here)), files, lambda: None), list[Any]()

    def other() -> None:
        summaries.append(first.back_up_stream(PLAIN))
        here.store().write(PLAIN, 1, 0, [an_event("2")])
        here.run(PLAIN, 3)

    def before(_name: str, _parameters: dict[str, Any]) -> None:
        if len(client.requests) == last:
            pool.submit(other).result()

    client = CountingClient(here.aws.dynamodb, before)
    begun = first.begin_or_continue("here", [], [PLAIN], "now")
    refused = pytest.raises(UserError, match=r"Another command writes the backup at \S+: let it finish")
    # In a thread of its own, so that no request of the other command counts as one that this one's reader makes.
    with ThreadPoolExecutor(1) as pool, refused:
        BackupWriter(Tables(place_of(here, client)), files, lambda: None).back_up_stream(PLAIN)
    first.finish(begun, "end", summaries)
    assert (
        StreamRestore(place_of(there), "it", lambda: None).restore(FinishedBackup(files), PLAIN, ran=True).events == 1
    )


def test_an_event_that_has_expired_is_left_out(here: Deployed, tmp_path: Path) -> None:
    """An expired event is not backed up: the bucket deletes its body days before DynamoDB deletes the event."""
    store = here.store(events_bucket=here.bucket, s3=lambda: here.aws.s3)
    here.run(PLAIN, 2)
    store.write(PLAIN, 1, 0, [an_event("old", noise(500_000)), an_event("small")], StoragePolicy(keep_days=1))
    store.write(PLAIN, 1, 2, [an_event("kept")])
    (body,) = {read_text(item, "object") for item in here.items()["events"].values()} - {None}
    here.aws.s3.delete_object(Bucket=here.bucket, Key=body)
    assert {name: back_up(here, tmp_path)[name] for name in ("events", "objects")} == {"events": 1, "objects": 0}


def test_a_damaged_backup_is_refused_by_the_name_of_its_file(
    here: Deployed, there: Deployed, tmp_path: Path, typed: Typed
) -> None:
    """No record of a stream with a damaged file is restored; other streams are. An unfinished backup has no manifest,
    and a finished one is not overwritten.
    """
    for stream_id in (PLAIN, SPREAD):
        here.run(stream_id, 2)
        here.store().write(stream_id, 1, 0, [an_event("1")])
    folder = tmp_path / "backup"
    arguments = ("backup", "--stage", "here", "--to", str(folder))
    assert typed(*arguments)[0] == 0
    assert typed(*arguments)[::2] == (
        2,
        "streamkeeper: --to names a finished backup: name another folder for a new one.\n",
    )
    part = folder / "streams/demo/events-000001.jsonl.gz"
    part.write_bytes(part.read_bytes()[:-1])
    status, done, wrong = typed("restore", "--stage", "there", "--from", str(folder))
    assert (status, [one["stream"] for one in done["streams"]], done["refused"]) == (1, [SPREAD], 1)
    assert wrong == "demo: its file events-000001.jsonl.gz is damaged in the backup: restore it from another one.\n"
    assert {stream_id for table in there.items().values() for stream_id, _ in table} == {SPREAD}
    (folder / "manifest.json").unlink()
    assert "backup/ has an unfinished backup" in typed("restore", "--stage", "there", "--from", str(folder))[2]
    (folder / "begun.json").unlink()
    assert "manifest.json cannot be read" in typed("restore", "--stage", "there", "--from", str(folder))[2]


def test_a_backup_ended_by_ctrl_c_is_completed_by_the_same_command(
    here: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed
) -> None:
    """After Ctrl-C finished streams stay finished, no other begins, and the same command completes the backup."""
    for number in range(4):
        here.run(f"demo:{number}", 2)
    monkeypatch.setattr(command, "THREADS", 1)
    add, arguments = Files.add, ("backup", "--stage", "here", "--to", str(tmp_path / "backup"))

    def interrupted(files: Files, name: str, content: bytes) -> None:
        if name.startswith("streams/demo:3/"):
            raise KeyboardInterrupt
        add(files, name, content)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "add", interrupted)
        status, _, wrong = typed(*arguments)
    assert status == INTERRUPTED
    said = r"streamkeeper: [0-3] of 4 streams done; run the same command for the others.\n"
    assert re.fullmatch(said, wrong), wrong
    assert typed(*arguments, "--match", "demo:*")[::2] == (
        2,
        "streamkeeper: --to names an unfinished backup of here: finish that one, or name another folder.\n",
    )
    status, manifest, _ = typed(*arguments)
    assert (status, manifest["streams"]) == (0, 4)


def test_a_missing_large_body_does_not_stop_a_backup_or_a_move(
    here: Deployed, there: Deployed, tmp_path: Path, typed: Typed
) -> None:
    """A missing body is counted, and the command continues. Before, a backup never ended, and a move left the stream
    stopped at both places.

    A body that is missing in the backup alone is damage. One that S3 refuses, as another bucket does, is not missing.
    """
    write_streams(here)
    elsewhere = replace(place_of(here), objects=Objects(lambda: here.aws.s3, "no-such-bucket"))
    with pytest.raises(StoreUnavailable, match="NoSuchBucket"):
        BackupWriter(Tables(elsewhere), files_at(str(tmp_path)), lambda: None).back_up_stream(PLAIN)
    before, folder = read_events(here, PLAIN), str(tmp_path / "backup")
    for name in ("whole", "less"):
        (key,) = (one["Key"] for one in here.aws.s3.list_objects_v2(Bucket=here.bucket).get("Contents", ()))
        if name == "less":
            here.aws.s3.delete_object(Bucket=here.bucket, Key=key)
        status, manifest, _ = typed("backup", "--stage", "here", "--to", folder + name)
        assert (status, manifest["total"]["gone"]) == (0, int(name == "less"))
    (body,) = (tmp_path / "backupwhole").rglob("objects/*")
    body.unlink()
    status, told, wrong = typed("restore", "--from", f"{folder}whole", "--stage", "there")
    assert (status, len(told["streams"]), wrong) == (1, 3, f"{PLAIN}: its body {body.name} is damaged in the backup: "
                                                     "restore it from another one.\n")  # fmt: skip
    there.clear()
    there.aws.s3.delete_object(Bucket=there.bucket, Key=key)
    found = typed("restore", "--from", f"{folder}less", "--stage", "there", "--match", PLAIN)[1]["streams"]
    assert [(one["events"], one["objects"], one["gone"]) for one in found] == [(8, 0, 1)]
    assert read_events(there, PLAIN) == read_events(here, PLAIN) != before
    there.clear()
    copy = move_demo(here, there)
    assert (copy.events, copy.objects, copy.gone, read_events(there, PLAIN)) == (8, 0, 1, read_events(here, PLAIN))


def test_a_bracket_in_a_pattern_matches_itself(here: Deployed, tmp_path: Path, typed: Typed) -> None:
    """As in a fleet's document, `demo:[a]` matches that stream only; `move --match` once took `demo:a` instead."""
    for name in ("demo:[a]", "demo:a"):
        here.run(name, 2)
    for number, pattern in enumerate(("demo:[a]", "demo:[*]")):
        folder = str(tmp_path / f"{number}")
        assert typed("backup", "--stage", "here", "--to", folder, "--match", pattern)[1]["streams"] == 1
        assert FinishedBackup(files_at(folder)).stream_ids() == ["demo:[a]"]
