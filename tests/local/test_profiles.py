"""`streamkeeper profile check`, and the page that explains the fields."""

import re
from pathlib import Path

import pytest

from handlers.stream.profiles import Profile
from local.cli import main
from local.upstreams.behaviours import BEHAVIOURS
from tests.handlers.servers import serving
from tests.local.support import PROJECT

JSON_LINES = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
MARKS = {"heartbeat", "end", "loss", "disconnect"}


def test_the_profiles_that_ship_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever variables are set here."""
    files = [str(path) for path in (PROJECT / "env" / "streams").glob("*.toml")]
    assert (main(["profile", "check", *files]), capsys.readouterr().err) == (0, "")


def test_every_problem_of_every_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, with the file, the field and what would be right; the status is 1."""
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text('framing = "csv"\nmore = 1\naddress = "${UPSTREAM_X}/a"\n')
    two.write_text("framing =\n")
    assert main(["profile", "check", str(one), str(two)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"{one}: the profile 'one': framing must be one of sse, ndjson, json-seq, length, raw",
        f"{one}: the profile 'one': more is not a field of a profile; docs/profiles.md lists those there are",
        f"{two}: is no TOML: Invalid value (at line 1, column 10)",
    ]


def test_a_file_that_is_not_there_is_a_mistake_of_the_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2 and one sentence."""
    assert main(["profile", "check", str(tmp_path / "none.toml")]) == 2
    assert capsys.readouterr().err.endswith("none.toml cannot be read: No such file or directory.\n")


def test_the_page_explains_every_field_and_no_other() -> None:
    """docs/profiles.md has a row for each field that a profile may have."""
    text = (PROJECT / "docs" / "profiles.md").read_text()
    rows = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    assert rows == set(Profile.__dataclass_fields__) - {"name", "marks"} | MARKS


def test_a_trial_shows_frames_keys_heartbeats_and_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One connection, told line by line; what comes behind the end is not read."""
    lines = b'\n{"seq":"4-x","id":"d","changes":[{"rev":"1-a"}]}\n{"last_seq":"4-x"}\n{"seq":"5-x"}\n'
    with serving(lambda peer: peer.send(JSON_LINES + lines)) as server:
        monkeypatch.setenv("UPSTREAM_COUCHDB", server.address)
        assert main(["profile", "try", "couchdb:orders", "--seconds", "5", "--cursor", "3-x"]) == 0
        assert b"since=3-x" in server.peers[0].request
    assert capsys.readouterr().out.splitlines() == [
        "answered 200, application/json",
        'event      key ["d","1-a"]  {"seq":"4-x","id":"d","changes":[{"rev":"1-a"}]}',
        'disconnect {"last_seq":"4-x"}',
        "the upstream wants a new connection",
        "in all: 1 disconnect, 1 event; cursor 4-x",
    ]


def test_a_trial_writes_nothing_that_a_terminal_obeys_and_knows_an_id_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control characters of the upstream are blanks; a block with an id alone moves the cursor."""
    wire = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 1\x1b\ndata: \x1b[2Jx\n\nid: 2\x07\n\n"
    with serving(lambda peer: peer.send(wire)) as server:
        monkeypatch.setenv("UPSTREAM_DEMO", server.address)
        assert main(["profile", "try", "demo", "--seconds", "5"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "event      key 1    [2Jx",
        "closed: ended_by_upstream",
        "in all: 1 event; cursor 2 ",
    ]


def test_a_trial_of_what_is_no_stream_says_what_it_would_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A refusal has the function's own name and sentence, and exit status 1; a stream that is none has 2."""
    with serving(lambda peer: peer.send(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")) as server:
        monkeypatch.setenv("UPSTREAM_DEMO", server.address)
        assert main(["profile", "try", "demo", "--seconds", "5"]) == 1
    assert capsys.readouterr().out.splitlines()[:2] == [
        "answered 404, no content type",
        "this is StreamRejected: the upstream answered 404: a retry cannot help",
    ]
    assert main(["profile", "try", "none"]) == 2
    assert capsys.readouterr().err == "streamkeeper: There is no profile 'none' in env/streams.\n"


@pytest.mark.parametrize("name", sorted(BEHAVIOURS))
def test_every_provider_can_be_tried_as_it_is_played_here(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a network, a secret or a variable: the profile as it ships, at another origin."""
    stream_id = name if name in ("completions", "x-filtered") else f"{name}:one"
    assert main(["profile", "try", stream_id, "--played", "--seconds", "0.25"]) == 0
    answered, *_, summary = capsys.readouterr().out.splitlines()
    assert answered.startswith("answered 200, ")
    assert re.search("in all: .*[1-9][0-9]* event", summary)


def test_who_is_not_played_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The demonstration streams are played by `streamkeeper run`."""
    assert main(["profile", "try", "demo", "--played"]) == 2
    assert capsys.readouterr().err.startswith("streamkeeper: Nobody plays the provider of 'demo'; there are: alpaca, ")
