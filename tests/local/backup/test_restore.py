"""`streamkeeper restore` between stages as the embedded AWS plays them: what it copies, and what it leaves as it is."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from handlers.connection.inputs import LOG, Layout, Written
from handlers.store.control_record import to_record
from handlers.store.event_items import StoragePolicy
from handlers.store.event_reader import SETTLES_MS
from handlers.store.segment_reader import anchor_write, log_start_number
from local.backup.stream_restore import StreamRestore
from local.backup.stream_source import NotRestored, Tables
from local.terminal import UserError
from tests.handlers.aws import CountingClient
from tests.handlers.store.events import an_event
from tests.local.backup.conftest import Typed
from tests.local.backup.copies import PLAIN, copy_demo, kill_anywhere, place_of, read_events, write_demo, write_streams
from tests.local.deployed_stage import Deployed, running


def test_a_restore_that_was_killed_at_any_request_can_be_completed(here: Deployed, there: Deployed) -> None:
    """The last request writes the lease, so no half stream can be started; the next try has each event once."""
    write_demo(here, *map(str, range(30)))
    for last in kill_anywhere(there, lambda client: copy_demo(here, there, client)):  # noqa: B007
        assert (PLAIN, "lease") not in there.items()["control"]
        restored = copy_demo(here, there)
        assert (restored.events, restored.kept) == (30, 0)
        assert there.items()["events"].keys() == here.items()["events"].keys()
        there.clear()
    assert last == 5


def test_a_restore_replaces_no_existing_stream(here: Deployed, there: Deployed) -> None:
    """A running stream, a newer record, another stream, log or layout are refused by name; existing events stay."""
    write_demo(here, *"012")
    there.store().write(PLAIN, 1, 0, [an_event("1", "another"), an_event("9")])

    def refused(words: str) -> None:
        before = there.items()
        with pytest.raises(NotRestored, match=words):
            copy_demo(here, there)
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
    restored = copy_demo(here, there)
    assert (restored.events, restored.kept) == (3, 1)
    events = there.items()["events"]
    assert [events[PLAIN, key]["data"]["S"] for key in ("0", "1", "9")] == ["a", "another", "a"]
    for stage, body in ((here, "a"), (there, "other")):
        stage.clear()
        stage.run(PLAIN, 2, partitions={"N": str(LOG)})
        log = stage.store().log_writer(PLAIN, 2, lambda: 5, window_ms=900_000, keep_days=0)
        for number in range(3):
            log.write(number, [an_event(f"{number}", body)])
    refused("another log with this id")


def test_a_newer_record_is_set_back_with_replace_only(here: Deployed, there: Deployed) -> None:
    """With `replace` the stream resumes from the older cursor, vouches for no time since, and reuses no token."""
    here.run(PLAIN, 2)
    there.run(PLAIN, 5)
    there.put(PLAIN, "gap#000000000004", from_ms={"N": "1"}, to_ms={"N": "2"}, cause={"S": "x"}, state={"S": "open"})
    copy_demo(here, there, replace=True)
    control = there.items()["control"]
    assert sorted(key for _, key in control) == ["connection#000000000001", "lease"]
    record = to_record(control[PLAIN, "lease"])
    assert (record.cursor, record.lease.fence, record.lease.released_token) == ("c2", 5, 2)
    assert record.live is not None
    assert record.live["fence"] == {"N": "2"}


@pytest.mark.parametrize("was_there", [False, True])
def test_a_stream_that_is_started_during_a_restore_is_not_replaced(
    here: Deployed, there: Deployed, was_there: bool
) -> None:
    """The lease is written last, and only if it is as it was when the restore began."""
    here.run(PLAIN, 2)
    if was_there:
        there.run(PLAIN, 1)

    def before(name: str, _parameters: dict[str, Any]) -> None:
        if name == "put_item":
            there.run(PLAIN, 1, generation={"N": "7"})

    with pytest.raises(NotRestored, match="it was started or restored at there meanwhile: run the command again"):
        copy_demo(here, there, CountingClient(there.aws.dynamodb, before))
    assert there.items()["control"][PLAIN, "lease"]["generation"] == {"N": "7"}


def test_a_copy_that_has_run_since_is_set_back_again(here: Deployed, there: Deployed) -> None:
    """A table may be lost twice, so `replace` restores a copy that has run, but not one that runs or never ran."""
    write_demo(here, "1")
    copy_demo(here, there)
    assert copy_demo(here, there, replace=True).was_there
    there.aws.dynamodb.delete_item(TableName=there.events_table, Key={"PK": {"S": PLAIN}, "SK": {"S": "1"}})
    since: dict[str, Any] = {"restored_from": {"S": "a test"}, "generation": {"N": "2"}}
    there.run(PLAIN, 3, **since, execution={"S": running(there.aws)})
    assert copy_demo(here, there, replace=True).was_there
    there.run(PLAIN, 3, **since)
    assert copy_demo(here, there).was_there
    assert copy_demo(here, there, replace=True).events == 1
    assert (PLAIN, "1") in there.items()["events"]


def test_tables_that_were_swapped_are_refused(here: Deployed, there: Deployed, tmp_path: Path, typed: Typed) -> None:
    """Swapped tables are refused. Before, events were written into the control table, or a traceback was printed."""
    write_streams(here)
    words = "of control tables: write STAGE/EVENTS,CONTROL, and restore a table with its indexes."
    for tables in ((there.control_table, there.events_table), (there.events_table, there.events_table)):
        swapped = "there/{},{}".format(*tables)
        for arguments in (
            ("restore", "--from", "here", "--stage", swapped),
            ("restore", "--from", swapped, "--stage", "here"),
            ("backup", "--stage", swapped, "--to", str(tmp_path / "backup")),
        ):
            status, _, wrong = typed(*arguments)
            assert (status, words in wrong) == (2, True), wrong
    assert there.items() == {"events": {}, "control": {}}

    def refuse(_name: str, _parameters: dict[str, Any]) -> None:
        # As a table without the index does.
        raise ClientError({"Error": {"Code": "ValidationException"}}, "Query")

    with pytest.raises(UserError, match="The streams of here cannot be listed: AWS refused Query"):
        Tables(place_of(here, CountingClient(here.aws.dynamodb, refuse))).stream_ids()


def test_a_stream_that_went_over_to_a_log_is_copied_whole(here: Deployed, there: Deployed) -> None:
    """A copy has the items, the log and the place where the log begins, so it is read as the original is."""
    went = {"partitions": {"N": str(LOG)}, "item_partitions": {"N": "3"}, "log_since_ms": {"N": "5"}}
    here.run(PLAIN, 2, **went)
    store, layout = here.store(), Layout(LOG, "index", 3, 5)
    store.write(PLAIN, 1, 0, [an_event(f"{one}") for one in range(4)], StoragePolicy(3))
    here.aws.dynamodb.put_item(TableName=here.events_table, Item=anchor_write(PLAIN, log_start_number(layout))[0])
    more: dict[str, Any] = {"window_ms": 900_000, "keep_days": 0, "layout": layout}
    assert (
        store.log_writer(PLAIN, 2, lambda: 6, **more).write(4, [an_event(f"{one}") for one in range(2, 8)]).stored == 4
    )
    assert copy_demo(here, there).events == 8
    later_ms = 5 + SETTLES_MS
    assert read_events(there, PLAIN, later_ms) == read_events(here, PLAIN, later_ms)
    assert len(read_events(there, PLAIN, later_ms)) == 8
    again = there.store().log_writer(PLAIN, 3, lambda: 7, **more)
    assert again.write(0, [an_event(f"{one}") for one in range(9)]) == Written(1, 8)


def test_a_copy_of_a_running_stream_has_all_events_up_to_its_cursor(here: Deployed, there: Deployed) -> None:
    """While the stream is copied, more connections store events and save the cursor; later events may be left out.

    The cursor of the copy names the copy's newest event, or an older one.
    """
    stored = 0

    def before(_name: str, _parameters: dict[str, Any]) -> None:
        nonlocal stored
        stored += 1
        here.store().write(PLAIN, 1, 0, [an_event(f"{stored:03d}")])
        here.run(PLAIN, 2 * stored, cursor={"S": f"{stored:03d}"})

    before("", {})
    moving = Tables(place_of(here, CountingClient(here.aws.dynamodb, before)))
    StreamRestore(place_of(there), "a test", lambda: None).restore(moving, PLAIN, ran=True)
    copy = there.items()
    lease = copy["control"][PLAIN, "lease"]
    assert lease["cursor"]["S"] in {key for _, key in copy["events"]}
    tokens = [int(key.split("#")[1]) for _, key in copy["control"] if key != "lease"]
    assert max(tokens) <= int(lease["fence"]["N"]) < 2 * stored
