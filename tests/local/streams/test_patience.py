"""The verbs `events`, `follow` and `apply` continue if the API does not answer for a moment, on its own socket."""

import json
import re
from pathlib import Path

import pytest

from handlers.api.fleet_routes import progress_json
from handlers.fleet.fleet_records import APPLYING, DONE, Fleet
from local import cli
from local.streams import api_session
from tests.client.api_server import afters, answers, asked, page, problem
from tests.handlers.servers import Peer, Script, serving
from tests.local.support import until


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits of the command; no time passes, and a slow machine prints no line of progress."""
    waited: list[float] = []
    monkeypatch.setattr(api_session, "SILENT_S", 60)
    monkeypatch.setattr("time.sleep", waited.append)
    return waited


def test_an_export_goes_on_where_it_was(tmp_path: Path, waits: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    """After a throttle the export waits for Retry-After; after an outage or a broken connection, longer each time."""
    file = tmp_path / "demo.ndjson"
    throttled = answers({}, 429, "Retry-After: 7")
    with serving(page(1, is_last=False), throttled, answers({}, 503), Peer.reset, page(2)) as server:
        assert cli.main(["events", "demo", "--url", server.address, "--output", str(file)]) == 0
        assert afters(server) == [None, 1, 1, 1, 1]
    assert [json.loads(line)["key"] for line in file.read_text().splitlines()] == ["1", "2"]
    assert waits == [7.0, 2.0, 4.0]
    said = capsys.readouterr().err.splitlines()
    assert said[0].endswith("Trying again in 7 s.")
    assert said[-2:] == ["streamkeeper: the API answers again.", f"2 events in {file}"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["events", "demo", "--from", "1h", "--to", "2h"],
            r"Nothing lies between --from \S+ and --to \S+: --to must be",
        ),
        (["gaps", "demo", "--from", "2026-11-02", "--to", "2026-11-02"], r"Nothing lies between --from \S+ and --to"),
        (["start", ""], "The stream id is empty: write a profile's name"),
        (
            ["start", "demo", "de*"],
            r"The stream id 'de\*' is malformed: .*\. For a pattern write `start --match 'de\*'`",
        ),
        (["events", "demo", "--output", "/"], "--output must be a file, and / is a folder."),
        (["events", "demo", "--output", f"{__file__}/x"], r"\S+/x cannot be written: Not a directory\."),
    ],
)
def test_a_command_that_can_find_nothing_is_refused(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty time or id is found before anything is sent."""
    assert cli.main([*arguments, "--url", "http://127.0.0.1:9"]) == 2
    assert re.match(f"streamkeeper: {sentence}", capsys.readouterr().err)


def test_follow_says_that_no_answer_comes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """After a second without an answer, `follow` says so, and takes the answer when it comes."""
    monkeypatch.setattr(api_session, "SILENT_S", 0.05)

    def late(peer: Peer) -> None:
        assert until(lambda: "has not answered yet; waiting." in capsys.readouterr().err, 60)
        peer.send(b"HTTP/1.1 404 X\r\nContent-Length: 2\r\n\r\n{}")

    with serving(late, answers({}, 404)) as server:
        assert cli.main(["follow", "demo", "--url", server.address]) == 2


@pytest.mark.parametrize("begin", ["--all", "--from 2026-11-02T00:00:00.000Z"])
def test_follow_that_has_printed_nothing_goes_on_where_it_began(
    begin: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The printed command has the same beginning and API; otherwise events in between would be missing."""

    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    with serving(answers({"stream": "demo", "events": [], "next": None})) as server:
        assert cli.main(["follow", "demo", "--url", server.address, *begin.split()]) == cli.INTERRUPTED
    assert f"continue with `streamkeeper follow demo {begin} --url {server.address}`" in capsys.readouterr().err


@pytest.mark.parametrize(("begin", "hour"), [(["--from", "1h"], "02"), ([], "03"), (["--from", "2026-11-29"], "00")])
def test_follow_begins_by_the_clock_of_the_api(begin: list[str], hour: str, waits: list[float]) -> None:
    """The API's clock shows 03:30, years before this machine's; a beginning in its future would print nothing."""
    clock = [] if hour == "00" else [answers({"streams": []}, 200, "Date: Sun, 29 Nov 2020 03:30:00 GMT")]
    with serving(*clock, page(1), answers(problem("unknown-stream"), 404)) as server:
        assert cli.main(["follow", "demo", *begin, "--url", server.address]) == 4
        found = re.findall(r"from=(\d+)-11-29T(\d+)", asked(server)[-1])
    year = "2026" if hour == "00" else "2020"
    assert found == [(year, hour)]
    assert waits == [1.0]


@pytest.mark.parametrize("do", ["events demo", "gaps demo", "repair demo", "sinks demo replay"])
def test_a_duration_counts_back_from_the_clock_of_the_api(do: str, waits: list[float]) -> None:
    """The API's clock shows 03:30, years before this machine's: each verb requests the hour before that."""
    body: dict[str, object] = {"stream": "demo", "events": [], "gaps": [], "sinks": [], "next": None}
    clock = answers({"streams": []}, 200, "Date: Sun, 29 Nov 2020 03:30:00 GMT")
    with serving(clock, answers(body)) as server:
        assert cli.main([*do.split(), "--from", "1h", "--url", server.address]) == 0
        assert re.findall(r"from=(\S+?)%3A", asked(server)[-1]) == ["2020-11-29T02"]
    assert waits == []


def test_a_slow_api_is_named_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """If each page is late, the line of progress comes only with the first."""
    monkeypatch.setattr(api_session, "SILENT_S", 0)
    with serving(page(1, is_last=False), page(2, is_last=False), page(3)) as server:
        assert cli.main(["events", "demo", "--url", server.address]) == 0
    assert capsys.readouterr().err.count("has not answered yet") <= 1


@pytest.mark.parametrize(
    ("status", "kind", "wanted"),
    [
        (400, "bad-stream-id", 2),
        (403, "not-allowed", 1),
        (404, "never-started", 4),
        (404, "no-such-position", 2),
        (409, "no-sinks", 1),
        (422, "bad-profile", 2),
    ],
)
def test_a_refusal_has_the_exit_status_of_its_kind(status: int, kind: str, wanted: int, tmp_path: Path) -> None:
    """A wrong argument, an unknown stream and a forbidden request have an exit status each."""
    with serving(answers(problem(kind), status)) as server:
        for verb in (["status", "demo"], ["archive", "demo", "--to", str(tmp_path)]):
            assert cli.main([*verb, "--url", server.address]) == wanted


def test_an_apply_ends_with_its_document(waits: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    """Another command may send the same document meanwhile; another one, an abort or a refusal ends the command."""

    def at(execution: str, state: str = APPLYING) -> Script:
        return answers(progress_json(Fleet(f"arn:fleet:{execution}", state=state, as_wanted=1), 1, is_dry=False))

    with serving(at("aa-1"), at("aa-2"), at("aa-3", DONE)) as server:
        assert cli.main(["start", "--all", "--url", server.address]) == 0
    with serving(at("aa-1"), at("aa-1", "interrupted")) as server:
        assert cli.main(["start", "--all", "--url", server.address]) == 1
    assert "aborted or failed: send the document again to continue." in capsys.readouterr().out
    with serving(at("aa-1"), at("bb-2")) as server:
        assert cli.main(["start", "--all", "--url", server.address]) == 2
    assert "Another document was applied in the meantime" in capsys.readouterr().err
    with serving(at("aa-1"), answers(problem("not-allowed"), 403)) as server:
        assert cli.main(["start", "--all", "--url", server.address]) == 1
    assert "The service goes on; `streamkeeper request GET /fleet` shows" in capsys.readouterr().err
    assert waits == [1.0, 1.0, 1.0, 1.0, 1.0]


def test_a_busy_api_ends_neither_an_apply_nor_an_archive(tmp_path: Path, waits: list[float]) -> None:
    """The service continues meanwhile, so the command polls for as long as that may be silent. An archive that follows
    polls for ever, because events leave the tables.
    """
    busy, done = (
        answers({}, 503, "Retry-After: 60"),
        progress_json(Fleet("arn:fleet:aa-1", state=DONE), 1, is_dry=False),
    )
    applying = answers(done | {"state": APPLYING})
    with serving(applying, busy, busy, busy, answers(done)) as server:
        assert cli.main(["start", "--all", "--url", server.address]) == 0
    with serving(page(), *[busy] * 11, answers(problem("not-allowed"), 403)) as server:
        assert cli.main(["archive", "demo", "--follow", "--to", str(tmp_path), "--url", server.address]) == 1
    assert waits == [1.0] + [60.0] * 14
