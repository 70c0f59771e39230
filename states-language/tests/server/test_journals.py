"""The journals: executions on disk."""

import cProfile
import os
import resource
from collections import OrderedDict
from pathlib import Path

from states_language.server.journals import MOST_OPEN, Journal, Journals, Opening
from states_language.server.requests import page
from states_language.server.stored_events import StoredEvents

WAITS = "arn:aws:states:us-east-1:000000000000:stateMachine:waits"


def test_the_order_of_starts_outlives_the_service(tmp_path: Path) -> None:
    """Starts within one millisecond, in two runs of the service, are read in order, after files with older names."""
    old = [Opening(f"arn:old{number}", "old", WAITS, "{}", number) for number in range(2)]
    for opening, name in zip(old, ("0" * 15 + "-" + "f" * 16, "0" * 14 + "1-" + "1" * 16), strict=True):
        journal = Journal(tmp_path / f"{name}.jsonl", OrderedDict())
        journal.write_line(opening=vars(opening))
        journal.close()
    openings = [Opening(f"arn:{number}", str(number), WAITS, "{}", 5) for number in range(40)]
    for life in (openings[:20], openings[20:]):
        records = Journals(tmp_path)
        for opening in life:
            records.create_journal(opening).close()
    assert [record.opening for record in Journals(tmp_path).read_all()] == [*old, *openings]


def test_few_files_are_open_however_many_executions_run(tmp_path: Path) -> None:
    """At most MOST_OPEN files are open, so 1,024 descriptors leave some for connections. No line is lost."""
    records = Journals(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    journals = [
        records.create_journal(Opening(f"arn:{number}", "one", WAITS, "{}", 0)) for number in range(3 * MOST_OPEN)
    ]
    for event in ({"id": 1}, {"id": 2}):
        for journal in journals:
            journal.write_event(event)
    assert len(os.listdir("/proc/self/fd")) - before == MOST_OPEN
    assert [list(StoredEvents(journal.path)) for journal in journals] == [[{"id": 1}, {"id": 2}]] * len(journals)
    for journal in journals:
        journal.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_full_disk_ends_no_execution(tmp_path: Path) -> None:
    """A line that cannot be written is written with the next one that can, so the record is whole."""
    journal = Journals(tmp_path).create_journal(Opening("arn:full", "full", WAITS, "{}", 0))
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (journal.path.stat().st_size + 10, unlimited[1]))
    try:
        journal.write_event({"id": 1})
        journal.write_event({"id": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert list(StoredEvents(journal.path)) == []
    journal.write_event({"id": 3})
    assert list(StoredEvents(journal.path)) == [{"id": 1}, {"id": 2}, {"id": 3}]
    journal.close()


def test_a_journal_that_cannot_be_opened_refuses_no_execution(tmp_path: Path) -> None:
    """An execution starts although its file cannot be created. The journal is written whole once it can."""
    folder = tmp_path / "executions"
    records = Journals(folder)
    folder.rmdir()
    journal = records.create_journal(Opening("arn:one", "one", WAITS, "{}", 0))
    journal.write_event({"id": 1, "half": "\ud800"})
    folder.mkdir()
    journal.write_event({"id": 2})
    journal.close()
    ((opening, closing, path),) = [(one.opening.arn, one.closing, one.path) for one in records.read_all()]
    assert (opening, closing) == ("arn:one", None)
    assert list(StoredEvents(path)) == [{"id": 1, "half": "?"}, {"id": 2}]


def test_a_page_of_a_history_reads_few_other_events(tmp_path: Path) -> None:
    """From either end a page parses few other events, as a binary search does."""
    journal = Journals(tmp_path).create_journal(Opening("arn:long", "long", WAITS, "{}", 0))
    for number in range(1, 4001):
        journal.write_event({"id": number})
    for backwards in (False, True):
        seen, token = [], None
        for turn in range(40):
            profile = cProfile.Profile()
            request: dict[str, str] = {} if token is None else {"nextToken": token}
            shown, rest = profile.runcall(
                page, request, "events", StoredEvents(journal.path), lambda event: event["id"], descending=backwards
            )
            parsed = sum(one.callcount for one in profile.getstats() if "raw_decode" in str(one.code))
            assert turn == 0 or parsed < 120
            seen += [event["id"] for event in shown]
            token = rest.get("nextToken")
        assert token is None
        assert seen == (list(range(4000, 0, -1)) if backwards else list(range(1, 4001)))
    journal.close()
