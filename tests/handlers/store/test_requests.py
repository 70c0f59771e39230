"""Which requests a step is, and in which order they are made."""

from typing import Any

from handlers.connection.effects import Progress, SaveProgress
from handlers.connection.steps import Invocation
from handlers.store.requests import Requests
from local.replay.shared_tasks import store_on
from local.replay.table import MemoryDynamoDB
from tests.handlers.connection.managers import profile

NAMES = {"events_table": "events", "control_table": "control", "dead_letter_queue": "queue"}


def written(progress: Progress) -> list[str]:
    """The sort keys of what a save of a cursor writes, in order."""
    keys: list[str] = []
    tables = MemoryDynamoDB("events", "control", on_change=lambda _table, key, _item: keys.append(key[1]))
    who = Invocation("demo", "A", "", "r1", 900_000, 4_000, 1_000, 1_000, 0)
    save: Any = SaveProgress("9", progress, 10_000)
    for request in Requests(profile(), store_on(tables, NAMES), who, lambda: 0).of(save):
        request()
    return keys


def test_the_ledger_says_that_a_cursor_is_too_old_before_it_goes() -> None:
    """The cursor first, for it alone must not be lost; but one that passes what the upstream has forgotten last."""
    progress = Progress(fence=1, claimed_ms=1, opened_ms=2, seen_ms=3, closed_ms=3, ended_by="reset")
    assert written(progress) == ["cursor", "connection#000000000001"]
    forgot = Progress(fence=1, claimed_ms=1, seen_ms=3, ended_by="cursor_expired", forgot_ms=3)
    assert written(forgot) == ["connection#000000000001", "cursor"]
