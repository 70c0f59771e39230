"""`streamkeeper profile try`, with servers of the test and with played providers."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from local.cli import main
from local.profiles import folders
from local.upstreams.behaviours import BEHAVIOURS
from tests.examples import one_in
from tests.handlers.servers import UNTIL_CLOSE, Peer, Script, sends, serving
from tests.local.support import PROJECT, environment

RESUMES = "resumes with the last event ID in the header Last-Event-ID"
JSON_LINES = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


def test_a_trial_shows_frames_keys_heartbeats_and_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trial connects once and prints line by line; bytes after the end mark are not read."""
    lines = b'\n{"seq":"4-x","id":"d","changes":[{"rev":"1-a"}]}\n{"last_seq":"4-x"}\n{"seq":"5-x"}\n'
    with serving(lambda peer: peer.send(JSON_LINES + lines)) as server:
        monkeypatch.setenv("UPSTREAM_COUCHDB", server.address)
        assert main(["profile", "try", "couchdb:orders", "--seconds", "5", "--cursor", "3-x"]) == 0
        assert b"since=3-x" in server.peers[0].request
    assert capsys.readouterr().out.splitlines() == [
        "resumes with $.seq in the query parameter since",
        "answered 200, application/json",
        'event      key ["d","1-a"]  {"seq":"4-x","id":"d","changes":[{"rev":"1-a"}]}',
        'disconnect {"last_seq":"4-x"}',
        "the upstream requests a new connection",
        "total: disconnect 1, event 1; cursor 4-x",
    ]


def run_trial(
    script: Script, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: str = "60"
) -> tuple[int, list[str]]:
    """Returns the status and the lines of a trial of `demo` at a scripted server."""
    with serving(script) as server:
        monkeypatch.setenv("UPSTREAM_DEMO", server.address)
        status = main(["profile", "try", "demo", "--seconds", seconds])
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == RESUMES
    return status, lines


ANSWERED, CLOSED, NOTHING = (
    "answered 200, text/event-stream", "closed: ended_by_upstream", "total: nothing; cursor none",
)  # fmt: skip
CANNOT = "warning: it cannot resume: none of the events had an id"
LINK_LOCAL = "the upstream's name resolves to a link-local address, which is never allowed"


def answer(status: int, *headers: str) -> bytes:
    """Returns an answer without a body."""
    return "\r\n".join([f"HTTP/1.1 {status} X", *headers, "Content-Length: 0", "\r\n"]).encode()


@pytest.mark.parametrize(
    ("sent", "status", "lines"),
    [
        # A block with an id and nothing else moves the cursor.
        (UNTIL_CLOSE + b"id: 1\ndata: x\n\nid: 2\n\n", 0, ["event      key 1  x", CLOSED, "total: event 1; cursor 2"]),
        # What cannot be resumed is warned of; not of a stream in which no event came, which proves nothing.
        (UNTIL_CLOSE + b"retry: 90000\n\ndata: x\n\n", 0,
         [CANNOT, "its retry is 90 s: the next connection waits 60 s", "total: event 1; cursor none"]),
        (UNTIL_CLOSE + b": x\n\n", 0, [ANSWERED, CLOSED, "total: keep-alive bytes without a frame 1; cursor none"]),
        (UNTIL_CLOSE + b"event: end\ndata: x\n\n", 0,
         ["the stream has ended: the function would not connect again", "total: end 1; cursor none"]),
        # An upstream's escape sequences are shown, not sent.
        (UNTIL_CLOSE + b"id: \x1b]0;t\x07\ndata: \x1b[31mred\n\n", 0,
         ["event      key \\x1b]0;t\\x07  \\x1b[31mred", CLOSED, "total: event 1; cursor \\x1b]0;t\\x07"]),
        # Why there is no stream: the function's own name and sentence.
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", 1,
         ["refused: the upstream answered with a content type other than text/event-stream", NOTHING]),
        (answer(302, "Location: http://169.254.169.254/"), 1, [f"closed: rejected: {LINK_LOCAL}", NOTHING]),
        (answer(429), 1, ["StreamThrottled: the upstream answered 429", NOTHING]),
        (answer(410), 1, ["answered 410, no content type", "refused: the upstream answered 410", NOTHING]),
        (b"no http\r\n\r\n", 1, ["closed: protocol: the answer is not valid HTTP (ProtocolError)", NOTHING]),
    ],
)  # fmt: skip
def test_a_trial_prints_how_an_answer_is_read(
    sent: bytes, status: int, lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last lines say how the answer is read, without an unexpected warning; the status is 1 without a stream."""
    ended, shown = run_trial(lambda peer: peer.send(sent), monkeypatch, capsys)
    assert (ended, shown[-len(lines) :]) == (status, lines)
    assert (CANNOT in shown) == (CANNOT in lines)


def test_a_trial_without_an_answer_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A trial says that no answer came in time, or why the server could not be reached."""
    status, lines = run_trial(lambda peer: peer.wait_until_gone(), monkeypatch, capsys, "0.3")
    assert (status, lines) == (1, ["no answer within this time", "total: nothing; cursor none"])
    monkeypatch.setenv("UPSTREAM_DEMO", "http://127.0.0.1:1")
    assert main(["profile", "try", "demo"]) == 1
    assert capsys.readouterr().out.splitlines()[1] == "closed: refused: nothing listens at the address"


def test_an_interrupt_ends_a_trial_with_its_summary() -> None:
    """After Ctrl-C the summary is printed, the connection is closed, and the status is 130."""
    with serving(sends(UNTIL_CLOSE, b"data: x\n\n", then=Peer.wait_until_gone)) as server:
        command = [sys.executable, "-m", "local.cli", "profile", "try", "demo", "--seconds", "60"]
        variables = environment(UPSTREAM_DEMO=server.address, PYTHONUNBUFFERED="1")
        with subprocess.Popen(command, cwd=PROJECT, env=variables, stdout=subprocess.PIPE, text=True) as trial:
            assert trial.stdout is not None
            lines = [trial.stdout.readline() for _ in range(3)]
            trial.send_signal(signal.SIGINT)
            lines += trial.stdout.readlines()
        assert server.peers[0].gone.wait(5)
    assert (trial.returncode, lines[-1]) == (130, "total: event 1; cursor none\n")


@pytest.mark.parametrize("seconds", ["0", "-1", "abc", "nan", "inf", "1e9", ""])
def test_a_bad_number_of_seconds_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence says which numbers are valid; the exit status is 2, and nothing is requested."""
    with pytest.raises(SystemExit) as ended:
        main(["profile", "try", "demo", f"--seconds={seconds}"])
    sentence = f"argument --seconds: must be a number of seconds above 0 and at most 86400, not {seconds!r}\n"
    assert (ended.value.code, capsys.readouterr().err.endswith(sentence)) == (2, True)


def test_a_secret_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an AWS account the sentence names the secret and the source of its value; the exit status is 2."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    assert main(["profile", "try", "x-filtered", "--stage", "prod"]) == 2
    sentence = "streamkeeper: The secret '/streamkeeper/prod/x/token' cannot be read now: NoRegionError. Secrets "
    assert capsys.readouterr().err.startswith(sentence)


def test_an_unknown_stream_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 2, and the sentence names what resembles it, or else the folder of the profiles."""
    for verb in ("try", "check"):
        for name, words in (("dmo", "; did you mean demo?"), ("nosuch", f" in {folders.SHIPPED}.")):
            assert main(["profile", verb, name]) == 2
            assert capsys.readouterr().err == f"streamkeeper: There is no profile {name!r}{words}\n"


def run_played(says: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    """Returns the status and the lines of a trial with a played provider, and tries longer if no line has the text."""
    for seconds in ("0.25", "2.5", "25"):
        status = main(["profile", "try", *arguments, "--played", "--seconds", seconds])
        lines = capsys.readouterr().out.splitlines()
        if any(re.search(says, line) for line in lines):
            break
    return status, lines


def test_a_trial_shows_the_events_of_a_batch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each event of a batch has its key; a heartbeat's cursor, and the oldest place after an expiry, are shown."""
    lines = [
        '{"result":{"header":{"revision":"4"},"created":true}}',
        '{"result":{"header":{"revision":"9"},"events":[{"kv":{"key":"YQ==","mod_revision":"5"}},'
        '{"type":"DELETE","kv":{"key":"Yg==","mod_revision":"5"}}]}}',
        '{"result":{"header":{"revision":"7"}}}',
        '{"result":{"canceled":true,"compact_revision":"9"}}',
    ]
    with serving(lambda peer: peer.send(JSON_LINES + "".join(f"{line}\n" for line in lines).encode())) as server:
        monkeypatch.setenv("UPSTREAM_ETCD", server.address)
        monkeypatch.setenv("COLUMNS", "100")
        assert main(["profile", "try", "etcd:a", "--seconds", "5"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "resumes with $.result.events[*].kv.mod_revision at /create_request/start_revision of the body",
        "answered 200, application/json",
        f"heartbeat  {lines[0][:70]}",
        'event      key ["YQ==","5"]  {"kv":{"key":"YQ==","mod_revision":"5"}}',
        'event      key ["Yg==","5"]  {"type":"DELETE","kv":{"key":"Yg==","mod_revision":"5"}}',
        f"heartbeat  {lines[2]}",
        f"expired    {lines[3]}",
        "the cursor is too old, and the upstream names its oldest place: the next request begins at 9",
        "total: event 2, expired 1, heartbeat 2; cursor 7",
    ]


@pytest.mark.parametrize("name", one_in(4, sorted(BEHAVIOURS)))
def test_every_provider_that_is_imitated_can_be_tried(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A trial of an imitation needs no network, secret or variable: it uses the shipped profile with another origin."""
    stream_id = name if name in ("completions", "x-filtered") else f"{name}:one"
    says = "total: .*event [1-9]"
    status, (resumes, *lines, summary) = run_played(says, capsys, stream_id)
    is_answered = any(re.match("answered (200|101), ", line) for line in lines)
    assert (status, "resume" in resumes, is_answered) == (0, True, True)
    assert re.search(says, summary)


@pytest.mark.parametrize(
    ("stream_id", "cursor", "line"),
    [
        ("companies-house:filings", "3", "the cursor is too old: a gap, and the stream continues without it"),
        ("kubernetes:pods", "3", "the cursor is too old: a gap, and the stream continues without it"),
        ("mercure:orders", "urn:played:3", "the answer does not begin after the cursor: a gap"),
        ("alpaca:trades", "yesterday 1", "refused: the upstream answered 400"),
    ],
)
def test_a_trial_reports_how_the_upstream_took_the_cursor(
    stream_id: str, cursor: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trial reports what the function would: a gap by status, in the stream or by header, or a refusal."""
    assert line in run_played(f"^{re.escape(line)}$", capsys, stream_id, "--cursor", cursor)[1]


def test_a_stream_without_an_imitation_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """A stream without an imitation is refused with the list of them; `streamkeeper run` plays the demo streams."""
    assert main(["profile", "try", "demo", "--played"]) == 2
    assert capsys.readouterr().err.startswith(
        "streamkeeper: There is no imitation of a provider for 'demo'; imitations: alpaca, "
    )


def test_a_trial_shows_which_events_would_be_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A left-out event is marked, moves the cursor and has a number; a rule that matches no event gets a warning."""
    lines = b'{"n":1,"t":"quote"}\n{"n":2,"t":"trade"}\n{"n":5,"t":"quote"}\n'
    with serving(lambda peer: peer.send(JSON_LINES + lines)) as server:
        rules = ('{ path = "$.t", is = "trade" }\nsequence = "$.n"', '{ path = "$.missing" }\nsequence = "$.t"')
        for number, rule in enumerate(rules):
            file = tmp_path / f"kept{number}.toml"
            file.write_text(
                f'address = "{server.address}/x"\nallow_private = true\nframing = "ndjson"\nkey = "$.n"\n'
                f'cursor = "$.n"\nresume = {{ query = "since" }}\nkeep = {rule}\n',
                encoding="utf-8",
            )
            assert main(["profile", "try", str(file), "--seconds", "5"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "resumes with $.n in the query parameter since",
        'keeps events that have "trade" at $.t; all others are counted and not stored',
        "answered 200, application/json",
        'left out   {"n":1,"t":"quote"}',
        'event      key 2  {"n":2,"t":"trade"}',
        "hole       2 numbers missing before this: a loss",
        'left out   {"n":5,"t":"quote"}',
        "closed: ended_by_upstream",
        "total: event 1, left out 2; cursor 5",
        "resumes with $.n in the query parameter since",
        "keeps events that have anything at $.missing; all others are counted and not stored",
        "answered 200, application/json",
        'left out   {"n":1,"t":"quote"}',
        'left out   {"n":2,"t":"trade"}',
        'left out   {"n":5,"t":"quote"}',
        "closed: ended_by_upstream",
        "warning: keep matches none of the events that came: nothing would be stored",
        "warning: none of the events has a whole number where sequence says: no hole would be noticed",
        "total: left out 3; cursor 5",
    ]
