"""A fleet's peers count and remember what they must; the bench judges a run, and leaves nothing behind."""

import asyncio
import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from bench.fleet import Row, goals, lines, main
from bench.fleet_peers import Counted, Upstream, data
from local.checkout import ROOT
from tests.local.support import until

GOOD = Row(10, 2, 1.5, 60.0, 2.5, 0, 0.0, 60, 0, 0, 0, {"Query": 1.25, "UpdateItem": 4.0}, 60.0, 20.0, 30.0, 6.1, 0.27)


def test_requests_are_counted_however_they_are_cut() -> None:
    """A head that comes in pieces counts once, and so does each of several that come together."""
    head = b"POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.%s\r\nContent-Length: 2\r\n\r\n{}"
    text = b"".join(head % name for name in (b"UpdateItem", b"Query", b"UpdateItem"))
    for size in (1, 7, 80, len(text)):
        counted, rest = Counted(), b""
        for at in range(0, len(text), size):
            rest = counted._counts(rest + text[at : at + size])
        assert counted.requests == {"UpdateItem": 2, "Query": 1}


def test_the_upstream_resumes_and_remembers() -> None:
    """Who asks for what came after an event gets the rest; what was written to anybody is in the report."""

    async def run() -> tuple[bytes, Upstream]:
        upstream = Upstream(1, 0.02)
        server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
        await asyncio.sleep(0.2)
        upstream.quiet()
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"GET /0 HTTP/1.1\r\nLast-Event-ID: 3\r\n\r\n")
        read = await reader.readuntil(b"id: 8\n")
        writer.close()
        await writer.wait_closed()
        server.close()
        while upstream.streams[0].peers:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)  # its side is closed too
        return read, upstream

    read, upstream = asyncio.run(run())
    assert [number for number in range(10) if data(0, number).encode() in read] == [4, 5, 6, 7]
    stream = upstream.streams[0]
    assert stream.sent == set(range(4, max(stream.sent) + 1))
    assert stream.openings == 1


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({}, []),
        ({"handovers": 1.9}, [0]),
        ({"gaps": 1}, [1]),
        ({"lost": 1}, [2]),
        ({"twice": 1}, [3]),
        ({"strange": 1}, [3]),
    ],
)
def test_a_run_is_judged(change: dict[str, Any], missed: list[int]) -> None:
    """By its handovers, their gaps, and by what lies in the tables."""
    row = Row(**{**GOOD.__dict__, **change})
    assert [number for number, goal in enumerate(goals(row)) if not goal.met] == missed
    assert "5.25 (Query 1.25, UpdateItem 4)" in "\n".join(lines(row))


@pytest.mark.parametrize("options", ["--streams 0", "--per-function x", "--seconds -1", "--every 0", "--function-s 89"])
def test_numbers_with_which_nothing_is_run(options: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They are refused before anything is started."""
    with pytest.raises(SystemExit) as ended:
        main(options.split())
    assert ended.value.code == 2
    assert "must be a number of at least" in capsys.readouterr().err


@pytest.mark.long
def test_four_streams_are_kept_by_two_functions(capsys: pytest.CaptureFixture[str]) -> None:
    """Real functions hand over, and each event is there once; how well is a goal's."""
    options = "--json --streams 4 --per-function 2 --seconds 40 --every 2 --function-s 90"
    assert main(options.split()) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["functions"], report["lost"], report["strange"], report["twice"]) == (2, 0, 0, 0)
    assert report["sent"] > 0
    assert report["requests"]["UpdateItem"] > 0


@pytest.mark.long
def test_ctrl_c_leaves_nothing() -> None:
    """It says so in a line, and ends with 130."""
    command = [sys.executable, "-m", "bench.fleet", "--streams", "2", "--per-function", "2", "--every", "7.25"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        seen = [run.stderr.readline()]
        run.send_signal(signal.SIGINT)
        seen += run.stderr.readlines()
    assert (run.returncode, seen[-1]) == (130, "bench.fleet: ended before the figures were known; nothing is left\n")
    assert until(lambda: "--every 7.25" not in _commands(), 15)


def _commands() -> str:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
