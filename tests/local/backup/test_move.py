"""`streamkeeper move` between stages as the embedded AWS plays them."""

import threading
from dataclasses import replace
from typing import Any

from handlers.store.control_record import to_record
from local.backup.stream_move import StreamMove
from local.backup.stream_source import NotRestored
from tests.handlers.aws import CountingClient
from tests.handlers.store.events import an_event
from tests.local.backup.conftest import Typed
from tests.local.backup.copies import PLAIN, kill_anywhere, move_demo, place_of, write_demo
from tests.local.deployed_stage import Deployed


def test_no_stream_is_started_at_named_tables(here: Deployed, there: Deployed, typed: Typed) -> None:
    """A move to named tables is refused before a stream is stopped. A stream that is named twice is moved once."""
    here.run(PLAIN, 2)
    tables, before = f"there/{there.events_table},{there.control_table}", here.items()
    said = f"streamkeeper: {tables} names tables, where no stream can be started: name a stage, or "
    status, _, wrong = typed("move", PLAIN, "--from", "here", "--to", tables)
    assert (status, wrong) == (2, said + "use `restore`.\n")
    status, _, wrong = typed("restore", "--from", "here", "--stage", tables, "--start")
    assert (status, wrong) == (2, said + "leave out --start.\n")
    assert here.items() == before
    here.run(PLAIN, 2, stop={"BOOL": True})
    status, done, _ = typed("move", PLAIN, PLAIN, "--from", "here", "--to", "there")
    assert (status, [(one["stream"], one["was_there"]) for one in done["streams"]]) == (0, [(PLAIN, False)])


def test_a_moved_stream_can_be_moved_back(here: Deployed, there: Deployed) -> None:
    """The older state at the first place is replaced by the newer one, and each event is there once."""
    write_demo(here, "1")
    move_demo(here, there)
    there.run(PLAIN, 3)
    there.store().write(PLAIN, 3, 0, [an_event("2")])
    restored = move_demo(there, here)
    assert (restored.events, restored.kept, restored.was_there) == (2, 0, False)
    control = here.items()["control"]
    assert sorted(key for _, key in here.items()["events"]) == ["1", "2"]
    assert to_record(control[PLAIN, "lease"]).cursor == "c3"
    assert (PLAIN, "connection#000000000002") in control


def test_a_move_that_was_killed_at_any_request_can_be_completed(here: Deployed, there: Deployed) -> None:
    """A move stops the stream and then copies it; at the new place the time between is a gap, not a stop."""
    write_demo(here, "1")
    for last in kill_anywhere(here, lambda client: move_demo(here, there, client)):  # noqa: B007
        assert (PLAIN, "lease") not in there.items()["control"]
        move_demo(here, there)
        left, found = (stage.items()["control"][PLAIN, "lease"] for stage in (here, there))
        assert left["stop"] == found["stop"] == {"BOOL": True}
        assert (found["stop_at"], "stop_since" in found) == (left["stop_at"], False)
        assert left["moved_to"]["S"] == f"there {left['stop_at']['S']}"
        assert move_demo(here, there).was_there
        there.clear()
        write_demo(here, "1")
    assert last == 6


def test_only_one_of_two_moves_at_once_starts_the_stream(here: Deployed, there: Deployed) -> None:
    """Whichever request is late, one copy runs; the other command is refused with the name of the place."""

    def refused(late: int) -> list[str] | None:
        """What the refused commands print if one moves all before the other's request number `late`, if it makes it."""
        found = list[str]()

        def move(name: str, dynamodb: Any = None) -> None:
            target = replace(place_of(there), name=name)
            try:
                StreamMove(place_of(here, dynamodb), target, lambda: None, lambda _: None).move(PLAIN)
            except NotRestored as refusal:
                found.append(str(refusal))

        def before(_name: str, _parameters: dict[str, Any]) -> None:
            if len(client.requests) == late:
                # In a thread of its own: the check of permissions reads the stack.
                other = threading.Thread(target=move, args=("east",))
                other.start()
                other.join()

        client = CountingClient(here.aws.dynamodb, before)
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
