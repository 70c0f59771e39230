"""`streamkeeper profile new`: the profiles that it writes for other people's servers, and what it refuses.

Each profile that it writes passes `profile check`, and `profile try` reads events with it.
"""

import contextlib
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handlers.framing.frames import Frame
from local.cli import main
from local.profiles import key_search
from local.profiles.address_probe import ProbedAddress, ProbeResult
from tests.handlers.servers import UNTIL_CLOSE, Peer, sends, serving
from tests.local.support import PROJECT
from tests.real.test_couchdb import Database

LOOK_S = "1.5"
PLAIN = "200 OK\r\nContent-Type: text/plain\r\n\r\n"
JSON_LINES = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


def make_profile(url: str, folder: Path, *more: str, seconds: str = LOOK_S) -> dict[str, Any]:
    """Runs `profile new` for the address and returns the profile, which is valid."""
    file = folder / "seen.toml"
    file.unlink(missing_ok=True)
    assert main(["profile", "new", url, "--seconds", seconds, "--output", str(file), *more]) == 0
    assert main(["profile", "check", str(file)]) == 0
    return tomllib.loads(file.read_text(encoding="utf-8"))


@contextlib.contextmanager
def better_sse() -> Iterator[str]:
    """The address of a server that uses the npm package better-sse."""
    command = ["node", str(PROJECT / "tests" / "real" / "better-sse-server.mjs")]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().rsplit(" ", 1)[-1].strip()
        finally:
            process.terminate()


def test_the_profile_of_better_sse_resumes_by_its_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """better-sse's ids are key and cursor. The server resumed after an id in the trial, and may count its ids anew."""
    with better_sse() as url:
        profile = make_profile(url, tmp_path)
        assert {name: profile[name] for name in ("address", "framing", "allow_private", "resume")} == {
            "address": url, "framing": "sse", "allow_private": True, "resume": {"header": "Last-Event-ID"},
        }  # fmt: skip
        assert not {"key", "cursor"} & set(profile)
        assert profile["on_conflict"] == "epoch"
        capsys.readouterr()
        assert main(["profile", "try", str(tmp_path / "seen.toml"), "--seconds", LOOK_S, "--cursor", "17"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in shown if line.startswith("event ")] == ["event"] * 3
    assert "event 3" in shown[-1]
    assert shown[-1].endswith("; cursor 20")


def test_the_profile_of_pouchdbs_changes_resumes_by_sequence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The key is the place in PouchDB's feed, not the document's id, which recurs; `since` resumes."""
    with contextlib.closing(Database()) as database:
        database.write(6)
        profile = make_profile(f"{database.address}/ledger/_changes?feed=continuous&heartbeat=200", tmp_path)
        wanted = {"framing": "ndjson", "key": "$.seq", "cursor": "$.seq", "resume": {"query": "since"}}
        assert {name: profile[name] for name in wanted} == wanted
        assert profile["on_conflict"] == "both"
        capsys.readouterr()
        assert main(["profile", "try", str(tmp_path / "seen.toml"), "--seconds", LOOK_S, "--cursor", "4"]) == 0
        assert "event 2" in capsys.readouterr().out.splitlines()[-1]


def sse_message(number: int, id_: str = "", name: str = "", data: str = "") -> bytes:
    """Returns a message of an event stream."""
    fields = [("id", id_), ("event", name), ("data", data or f'{{"n": {number}}}')]
    return "".join(f"{field}: {value}\n" for field, value in fields if value).encode() + b"\n"


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        # Ids that come twice name no event: the bodies' own place does.
        (b"".join(sse_message(n, id_="same") for n in range(4)), {"key": "$.n", "on_conflict": "both"}),
        # Nothing names an event: equal bodies are kept apart only where they are seen to come.
        (b"".join(sse_message(n, data=f"word {n}") for n in range(4)), {"key": "hash"}),
        (b"".join(sse_message(n, data="word") for n in range(4)), {"key": "each"}),
        (sse_message(1), {"key": "hash"}),
        # Half of a surrogate pair is no text.
        (b"".join(sse_message(n, data=f'{{"id": "\\ud800{n}"}}') for n in range(4)), {"key": "hash"}),
        (
            b"".join(sse_message(n, id_=f"{n}") + sse_message(n, name="ping", data="now") for n in range(4)),
            {"on_conflict": "epoch", "heartbeat": {"event": "ping"}},
        ),
        # What repeats without the place that names the others is a heartbeat, whatever it is called.
        (
            b"".join(
                sse_message(n, data=f'{{"op": "t", "n": {n}}}') + sse_message(n, data='{"op": "ka"}') for n in range(4)
            ),
            {"key": "$.n", "on_conflict": "both", "heartbeat": {"json": {"$.op": "ka"}}},
        ),
        # A tick that repeats has the place too, and may be an event that came twice.
        (b"".join(sse_message(0, data=f'{{"n": {n % 3}, "op": "t{n % 3}"}}') for n in range(4)), {"key": "each"}),
        # django-eventstream greets without an id.
        (b"event: open\ndata:\n\n" + b"".join(sse_message(n, id_=f"prices:{n}") for n in range(3)), {}),
        # Instants are no count, nor is what leaves numbers out.
        (b"".join(sse_message(n, id_=f"{n + 10**9}") for n in range(4)), {}),
        (b"".join(sse_message(n, id_=f"{n * n}") for n in range(4)), {}),
        # No JSON path can have this name.
        (b"".join(sse_message(n, id_=f"{n * n}", data='{"é": "ping"}') for n in range(4)), {}),
        (b": nothing yet\n\n", {}),
    ],
)
def test_the_key_is_chosen_by_what_differs_between_events(
    answer: bytes, wanted: dict[str, Any], tmp_path: Path
) -> None:
    """The profile has the ids, bodies and heartbeats that were seen, and nothing else."""
    with serving(lambda peer: peer.send(UNTIL_CLOSE + answer)) as server:
        profile = make_profile(server.address, tmp_path)
    assert {name: profile[name] for name in profile if name in ("key", "on_conflict", "heartbeat", "cursor")} == wanted
    assert profile["framing"] == "sse"


def test_a_greeting_without_an_id_hides_no_resuming(tmp_path: Path) -> None:
    """The upstream is found to resume after an id although each answer begins with a greeting that has none."""

    def serve(peer: Peer) -> None:
        after = re.search(rb"(?i)last-event-id: p:(\d+)", peer.request)
        first = int(after[1]) + 1 if after else 0
        events = b"".join(sse_message(n, id_=f"p:{n}") for n in range(first, 4))
        peer.send(UNTIL_CLOSE + b"event: open\ndata:\n\n" + events)

    with serving(serve) as server:
        assert make_profile(server.address, tmp_path)["resume"] == {"header": "Last-Event-ID"}


def test_a_profile_is_written_for_a_post_too(tmp_path: Path) -> None:
    """The body is sent with a POST, and the profile has it as it was typed."""
    body = '{"watch": {"key": "Zm9v", "what": "\\"é\\u0000"}}'
    with serving(sends(JSON_LINES, b'{"result": {"created": true}}\n', then=Peer.wait_until_gone)) as server:
        profile = make_profile(server.address, tmp_path, "--body", body, seconds="0.5")
        assert [peer.request.split(b" ")[0] for peer in server.peers] == [b"POST", b"POST"]
    assert (profile["method"], profile["body"], profile["framing"]) == ("POST", body, "ndjson")


@pytest.mark.parametrize(
    ("body", "framing"),
    [
        ("1,EUR\n2,USD\n3,", "ndjson"),
        ("[1, 2]\n[3, 4]\n", "ndjson"),
        ('{\n  "n": 1\n}\n', "raw"),
        ('[\n{"n": 1},\n', "raw"),
        ("\x00\x01\n\x02\n", "raw"),
        ("no line yet", "raw"),
    ],
)
def test_lines_of_text_are_events(body: str, framing: str, tmp_path: Path) -> None:
    """Lines are events if two connections, unlike reads, cut them alike; a document of several lines is not split."""
    with serving(sends(f"HTTP/1.1 {PLAIN}{body}".encode(), then=Peer.wait_until_gone)) as server:
        assert make_profile(server.address, tmp_path, seconds="0.5")["framing"] == framing


def test_an_answer_that_ends_gets_a_profile_with_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An upstream may end each answer, so the profile is written, with a note that the answer ended."""
    with serving(lambda peer: peer.send(JSON_LINES + b'{"n": 1}\n{"n": 2}\n')) as server:
        make_profile(server.address, tmp_path)
    assert "is written, although the upstream ended the answer; try it" in capsys.readouterr().err
    assert "# The upstream ended the answer. " in (tmp_path / "seen.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("401 Unauthorized", "the answer is 401, not a stream; if it requires a credential, write ${secret:NAME}"),
        ("405 Method Not Allowed", "the answer is 405, not a stream; if it takes a POST, give its body with --body"),
        ("200 OK", "the answer (text/html) is a document that ends, not a stream of events"),
        ("200 OK\r\nContent-Encoding: br", "the body is compressed by a coding that was not requested"),
        (PLAIN + '0{"sid":"x"}', "it is Socket.IO's, which is not read"),
        (PLAIN + 'INFO {"server_id":"x"} ', "it is NATS's, which is not read"),
        (PLAIN + "{}\x1e", "it is SignalR's, which is not read"),
        (PLAIN + "data: 1\n\n", "the answer has a content type other than text/event-stream"),
    ],
)
def test_an_answer_that_is_no_stream_is_refused(
    status: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence says what answered, or why every function would refuse the answer, and no file is written."""
    page = f"{status}\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<p>no</p>\n<p>"
    head = f"HTTP/1.1 {status if PLAIN in status else page}"
    with serving(lambda peer: peer.send(head.encode())) as server:
        assert main(["profile", "new", server.address, "--seconds", "30", "--output", str(tmp_path / "x.toml")]) == 1
    assert capsys.readouterr().err.startswith(f"streamkeeper: {said}")
    assert list(tmp_path.iterdir()) == []


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bad address, invalid name or existing file gets one line and status 2; nothing is requested or replaced."""
    file = tmp_path / "there.toml"
    file.write_text("mine")
    for arguments, said in (
        (["nonsense"], "must begin with http://, https://"),
        (["http://[::1"], "must be a valid address"),
        (["http://u:p4ss@127.0.0.1/"], "must not contain a user or a password"),
        (["http://127.0.0.1/?token=p4ss"], "contains 'token' in plain text"),
        (["http://127.0.0.1/", "--name", "a:b"], "--name cannot be"),
        (["http://127.0.0.1/", "--output", str(file)], "already exists"),
    ):
        assert main(["profile", "new", *arguments]) == 2, arguments
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
        assert "p4ss" not in error
    assert file.read_text() == "mine"


SCALARS = st.one_of(st.text(max_size=8), st.integers(), st.booleans(), st.none(), st.floats())
BODIES = st.dictionaries(
    st.one_of(st.sampled_from(["id", "seq", "meta"]), st.text(max_size=4)),
    st.one_of(SCALARS, st.dictionaries(st.sampled_from(["id", "a b", "c.d"]), SCALARS)),
    max_size=3,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(BODIES, min_size=2, max_size=6))
def test_a_chosen_key_differs_for_all_events(bodies: list[dict[str, Any]]) -> None:
    """For any JSON, the values at a chosen place differ for all events; the profile is valid TOML and loses none."""
    seen = ProbeResult(frames=[Frame(json.dumps(body)) for body in bodies])
    for place in key_search.unique_places(seen.bodies):
        values = [json.loads(json.dumps(body)) for body in bodies]
        for name in place.split(".")[1:]:
            values = [value[name] for value in values]
        assert len({str(value) for value in values}) == len(bodies)
    lines = key_search.key_lines(ProbedAddress("http://127.0.0.1/", body="{}"), "ndjson", seen, 0)
    profile = tomllib.loads("\n".join(lines))
    assert profile["key"] == "hash" or profile["key"] == "each" or profile["on_conflict"] == "both"


def test_a_greeting_among_the_events_hides_no_key() -> None:
    """The key is unique among most events; a few with other members, as an answer, are known by their hashes."""
    events = [json.dumps({"message": {"id": number}}) for number in range(3)]
    seen = ProbeResult(frames=[Frame(text) for text in ('{"type":"ok"}', '{"type":"ok"}', *events)])
    line = key_search.key_lines(ProbedAddress("ws://127.0.0.1/"), "websocket", seen, 0)[0]
    assert line == 'key = "$.message.id"  # it was different in each event that came but 2, known by their hashes'
