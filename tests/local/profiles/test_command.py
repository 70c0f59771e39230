"""`streamkeeper profile check`, and the page that explains the fields."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from handlers.profile.behaviour import Profile
from local.cli import main
from local.upstreams.behaviours import BEHAVIOURS
from tests.handlers.servers import UNTIL_CLOSE, Peer, Script, serving
from tests.local.support import PROJECT, environment

JSON_LINES = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
ADDRESS = b'framing = "sse"\naddress = "%s"\n'
SOUND = ADDRESS % b"https://example.org/"
CALLED = "must be called NAME.toml, where NAME is 1 to 64 of the characters A-Z a-z 0-9 . _ -"
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


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("empty", b"", "the profile 'empty': framing is missing"),
        ("a b", SOUND, CALLED),
        ("x:y", SOUND, CALLED),
        ("nested", b"a = " + b"[" * 5000, "is no TOML: "),
        ("meta", ADDRESS % b"http://169.254.169.254/latest", "address leads to a link-local address, which is never"),
        (
            "decimal",
            ADDRESS % b"http://2852039166/",
            "address leads to a link-local address, which is never connected to",
        ),
        ("hex", ADDRESS % b"https://0xa9.0xfe.0xa9.0xfe./", "address leads to a link-local address"),
        ("octal", ADDRESS % b"http://0251.0376.0251.0376/", "address leads to a link-local address"),
        ("mapped", ADDRESS % b"http://[::ffff:a9fe:a9fe]/", "address leads to a link-local address"),
        ("nat64", ADDRESS % b"http://[64:ff9b::a9fe:a9fe]/", "address leads to a link-local address"),
        (
            "private",
            ADDRESS % b"http://10.0.0.1/",
            "address leads to a private address, which the profile does not allow",
        ),
        ("secret", SOUND + b'headers = { Authorization = "Bearer k3y" }\n', "holds 'Authorization' in plain text"),
    ],
)
def test_a_bad_file_gets_a_sentence(
    tmp_path: Path, name: str, text: bytes, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on standard error, exit status 1, and no secret in it."""
    path = tmp_path / f"{name}.toml"
    path.write_bytes(text)
    assert main(["profile", "check", str(path)]) == 1
    told = capsys.readouterr()
    first = told.err.splitlines()[0]
    assert (told.out, first.startswith(f"{path}: "), sentence in first, "k3y" in told.err) == ("", True, True, False)


def test_what_cannot_be_read_is_told_and_the_rest_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder, bytes, a file that never ends and one that is not there: a sentence each, and exit status 2."""
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    (tmp_path / "empty.toml").write_text("")
    names = ("folder", "bytes", "zero", "none", "empty")
    assert main(["profile", "check", *(str(tmp_path / f"{name}.toml") for name in names)]) == 2
    assert [line.replace(str(tmp_path), "") for line in capsys.readouterr().err.splitlines()] == [
        "streamkeeper: /folder.toml cannot be read: Is a directory.",
        "streamkeeper: /bytes.toml cannot be read: it is no text in UTF-8.",
        "streamkeeper: /zero.toml cannot be read: it is larger than a profile may be, 1000000 bytes.",
        "streamkeeper: /none.toml cannot be read: No such file or directory.",
        "/empty.toml: the profile 'empty': framing is missing",
        "/empty.toml: the profile 'empty': address is missing",
    ]


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
        "in all: disconnect 1, event 1; cursor 4-x",
    ]


def test_a_trial_knows_an_id_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A block with an id and nothing else moves the cursor."""
    assert tried(lambda peer: peer.send(UNTIL_CLOSE + b"id: 1\ndata: x\n\nid: 2\n\n"), monkeypatch, capsys, "5") == (
        0,
        [
            "answered 200, text/event-stream",
            "event      key 1  x",
            "closed: ended_by_upstream",
            "in all: event 1; cursor 2",
        ],
    )


def tried(
    script: Script, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: str = "0.3"
) -> tuple[int, list[str]]:
    """The status and the lines of a trial of `demo` at a server of one script."""
    with serving(script) as server:
        monkeypatch.setenv("UPSTREAM_DEMO", server.address)
        status = main(["profile", "try", "demo", "--seconds", seconds])
    return status, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>",
            "this is StreamRejected: the upstream answered w",
        ),
        (
            b"HTTP/1.1 302 X\r\nLocation: http://169.254.169.254/\r\n\r\n",
            "closed: rejected: the upstream's name leads to",
        ),
        (
            b"HTTP/1.1 302 X\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
            "closed: rejected: the upstream redirected more",
        ),
        (b"HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n", "this is StreamRejected: the upstream answered 401: a retry"),
        (b"HTTP/1.1 429 X\r\nContent-Length: 0\r\n\r\n", "this is StreamThrottled: the upstream answered 429"),
        (b"no http\r\n\r\n", "closed: protocol: the answer is no HTTP (ProtocolError)"),
    ],
)
def test_a_trial_says_why_there_is_no_stream(
    answer: bytes, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The function's own name and sentence, and exit status 1."""
    status, lines = tried(lambda peer: peer.send(answer), monkeypatch, capsys, "5")
    assert (status, lines[-2].startswith(line), lines[-1]) == (1, True, "in all: nothing; cursor none")


def test_a_trial_of_who_does_not_answer_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing came in the time that was given; and where nothing listens, the reason."""
    status, lines = tried(lambda peer: peer.wait_until_gone(), monkeypatch, capsys)
    assert (status, lines) == (1, ["no answer came in this time", "in all: nothing; cursor none"])
    monkeypatch.setenv("UPSTREAM_DEMO", "http://127.0.0.1:1")
    assert main(["profile", "try", "demo"]) == 1
    assert capsys.readouterr().out.startswith("closed: refused: nothing listens at the address\n")


def test_a_trial_shows_heartbeats_and_spells_out_what_a_terminal_would_obey(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stream of comments is a stream; an upstream's escape sequences are shown, not sent."""

    def beats(peer: Peer) -> None:
        peer.send(UNTIL_CLOSE)
        peer.send(b": beat\n\n")
        peer.wait_until_gone()

    assert tried(beats, monkeypatch, capsys)[1][1] == "in all: bytes without a frame (a sign of life) 1; cursor none"
    status, lines = tried(
        lambda peer: peer.send(UNTIL_CLOSE + b"id: \x1b]0;t\x07\ndata: \x1b[31mred\n\n"), monkeypatch, capsys
    )
    shown = [
        "event      key \\x1b]0;t\\x07  \\x1b[31mred",
        "closed: ended_by_upstream",
        "in all: event 1; cursor \\x1b]0;t\\x07",
    ]
    assert (status, lines[1:]) == (0, shown)


def test_an_interrupt_ends_a_trial_with_its_summary() -> None:
    """Ctrl-C: what came is told, the connection is closed, and the status is 130."""

    def beats(peer: Peer) -> None:
        peer.send(UNTIL_CLOSE + b"data: x\n\n")
        peer.wait_until_gone()

    with serving(beats) as server:
        command = [sys.executable, "-m", "local.cli", "profile", "try", "demo", "--seconds", "60"]
        given = environment(UPSTREAM_DEMO=server.address, PYTHONUNBUFFERED="1")
        with subprocess.Popen(command, cwd=PROJECT, env=given, stdout=subprocess.PIPE, text=True) as trial:
            assert trial.stdout is not None
            lines = [trial.stdout.readline(), trial.stdout.readline()]
            trial.send_signal(signal.SIGINT)
            lines += trial.stdout.readlines()
        assert server.peers[0].gone.wait(5)
    assert (trial.returncode, lines[-1]) == (130, "in all: event 1; cursor none\n")


@pytest.mark.parametrize("seconds", ["0", "-1", "abc", "nan", "inf", "1e9", ""])
def test_a_length_of_time_that_is_none_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence that says what would be right, exit status 2, and nothing is connected."""
    with pytest.raises(SystemExit) as ended:
        main(["profile", "try", "demo", f"--seconds={seconds}"])
    sentence = f"argument --seconds: must be a number of seconds above 0 and at most 86400, not {seconds!r}\n"
    assert (ended.value.code, capsys.readouterr().err.endswith(sentence)) == (2, True)


def test_a_secret_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an AWS account: one sentence, exit status 2."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    assert main(["profile", "try", "x-filtered"]) == 2
    sentence = "streamkeeper: the secret '/streamkeeper/x/token' cannot be read now: NoRegionError.\n"
    assert capsys.readouterr().err == sentence


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
    assert capsys.readouterr().err.startswith("streamkeeper: There is no profile 'none' in env/streams; there are: al")


@pytest.mark.parametrize("name", sorted(BEHAVIOURS))
def test_every_provider_can_be_tried_as_it_is_played_here(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a network, a secret or a variable: the profile as it ships, at another origin."""
    stream_id = name if name in ("completions", "x-filtered") else f"{name}:one"
    assert main(["profile", "try", stream_id, "--played", "--seconds", "0.25"]) == 0
    answered, *_, summary = capsys.readouterr().out.splitlines()
    assert answered.startswith("answered 200, ")
    assert re.search("in all: .*event [1-9]", summary)


@pytest.mark.parametrize(
    ("stream_id", "cursor", "line"),
    [
        ("companies-house:filings", "3", "the cursor is too old: a gap, and on without it"),
        ("kubernetes:pods", "3", "the cursor is too old: a gap, and on without it"),
        ("mercure:orders", "urn:played:3", "the answer does not begin behind the cursor: a gap"),
        ("alpaca:trades", "yesterday 1", "this is StreamRejected: the upstream answered 400: a retry cannot help"),
    ],
)
def test_a_trial_tells_what_becomes_of_a_cursor(
    stream_id: str, cursor: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the function would take the answer: a gap, by a status, in the stream or by a header; or a request refused."""
    main(["profile", "try", stream_id, "--played", "--seconds", "0.2", "--cursor", cursor])
    assert line in capsys.readouterr().out.splitlines()


def test_who_is_not_played_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The demonstration streams are played by `streamkeeper run`."""
    assert main(["profile", "try", "demo", "--played"]) == 2
    assert capsys.readouterr().err.startswith("streamkeeper: Nobody plays the provider of 'demo'; there are: alpaca, ")
