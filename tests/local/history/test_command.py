"""`streamkeeper timeline` reads histories in the form of AWS."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from endpoint import ROLE, service, states_client
from local.cli import main
from tests.handlers.servers import sends, serving
from tests.local.support import in_thread, until

DAY = "2026-11-28T"
FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function:echo"
TWO_CALLS = {
    "StartAt": "First",
    "States": {
        "First": {"Type": "Task", "Resource": FUNCTION, "Next": "Rest"},
        "Rest": {"Type": "Wait", "Seconds": 1, "Next": "Second"},
        "Second": {"Type": "Task", "Resource": FUNCTION, "End": True},
    },
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Step Functions endpoint on a socket."""
    folder = tmp_path_factory.mktemp("api")
    with in_thread(lambda: service(folder)) as address:
        yield address


@pytest.fixture(scope="module")
def arn(url: str) -> str:
    """A finished execution of two calls with a second between them."""
    states = states_client(url)
    machine = states.create_state_machine(name="two-calls", definition=json.dumps(TWO_CALLS), roleArn=ROLE)
    execution: str = states.start_execution(stateMachineArn=machine["stateMachineArn"], name="once")["executionArn"]
    until(lambda: states.describe_execution(executionArn=execution)["status"] == "SUCCEEDED")
    return execution


def page_of(url: str, arn: str, **asked: Any) -> dict[str, Any]:
    """Returns a page as the AWS CLI prints it."""
    answer = states_client(url).get_execution_history(executionArn=arn, **asked)
    found: dict[str, Any] = json.loads(json.dumps(answer, default=lambda at: at.isoformat()))
    return {name: found[name] for name in ("events", "nextToken") if name in found}


@pytest.fixture
def endpoint(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's own variables point to the endpoint."""
    for name, value in (("ENDPOINT_URL", url), ("ACCESS_KEY_ID", "local"), ("SECRET_ACCESS_KEY", "local")):
        monkeypatch.setenv(f"AWS_{name}", value)


def read_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["timeline", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.usefixtures("endpoint")
def test_an_execution_and_its_pages_give_the_same_gaps(
    url: str, arn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The endpoint and two pages, newest first, give the same gap of a second."""
    asked = read_json(capsys, "--execution", arn)
    newer = page_of(url, arn, maxResults=9, reverseOrder=True)
    pages = [newer, page_of(url, arn, maxResults=9, reverseOrder=True, nextToken=newer["nextToken"])]
    files = [tmp_path / f"page-{number}.json" for number in range(2)]
    for file, page in zip(files, pages, strict=True):
        file.write_text(json.dumps(page))
    read = read_json(capsys, *map(str, files))
    # Of files, an execution is called as the one that it begins in.
    assert (read["gaps"], read["executions"][0]["name"]) == (asked["gaps"], "page-1.json")
    (gap,) = asked["gaps"]
    assert (gap["cause"], gap["to_ms"] - gap["from_ms"] >= 1000) == ("succeeded", True)
    (execution,) = asked["executions"]
    assert (execution["name"], execution["status"], execution["events"]) == ("once", "SUCCEEDED", 14)
    # Three states are entered, at 25 dollars a million; two calls at 20 cents, and the milliseconds that they took.
    assert asked["usd"]["step_functions"] == pytest.approx(75e-6)
    assert asked["usd"]["lambda"] > 0.4e-6


def test_the_picture_is_written(url: str, arn: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The picture is an SVG, or in a page that loads nothing; the terminal shows it with its rows."""
    history = tmp_path / "history.json"
    history.write_text(json.dumps(page_of(url, arn)))
    for name in ("out.svg", "out.html"):
        assert main(["timeline", str(history), "--rows", "--width", "40", "--picture", str(tmp_path / name)]) == 0
        text = (tmp_path / name).read_text()
        assert (text.count("<svg"), "gap: " in text) == (1, True)
        assert not any(word in text for word in ("src=", "href="))
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("task started") == 4
    assert "after a Task that succeeded" in said
    assert "14 of 25,000 events" in said


def test_open_and_repaired_gaps_of_a_stream_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The API's gaps for the time of the history are drawn: a mark and a word in the text, a line in the picture.

    One gap is too early, and an open one ends with the picture. A gap of the history counts as repaired if a repaired
    gap of the stream covers it.
    """
    kinds = ("ExecutionStarted", "TaskStateEntered", *("TaskStarted", "TaskFailed") * 2, "TaskStarted")
    seconds = (0, 0, 0, 12, 18, 31, 40)
    events = [
        {"id": at, "previousEventId": at - 1, "type": kind, "timestamp": f"{DAY}00:01:{second:02d}Z"}
        for at, (kind, second) in enumerate(zip(kinds, seconds, strict=True), 1)
    ]
    (tmp_path / "history.json").write_text(json.dumps({"events": events}))
    times = [("00:00:10", "00:00:20"), ("00:01:10", "00:01:20"), ("00:01:30", "")]
    listed = [
        {"from_at": f"{DAY}{begin}.000Z", "to_at": f"{DAY}{to}.000Z" if to else None, "cause": "reset", "state": state}
        for (begin, to), state in zip(times, ("repaired", "repaired", "open"), strict=True)
    ]
    body = json.dumps({"stream": "demo", "gaps": listed, "next": None}).encode()
    answer = sends(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    with serving(answer, answer) as server:
        asked = [str(tmp_path / "history.json"), "--stream", "demo", "--url", server.address]
        found = read_json(capsys, *asked)
        assert main(["timeline", *asked, "--width", "40", "--picture", str(tmp_path / "out.svg")]) == 0
        assert b"/connections/demo/gaps?from=2026-11-28T00%3A01%3A00.000Z&to=" in server.peers[0].request
    assert [(gap["from_ms"], gap["state"]) for gap in found["gaps"]] == [(12_000, "repaired"), (31_000, "")]
    (stream,) = found["streams"]
    shown = [(gap["from_ms"], gap["to_ms"], gap["state"]) for gap in stream["gaps"]]
    assert shown == [(10_000, 20_000, "repaired"), (30_000, 40_000, "open")]
    said = capsys.readouterr().out
    assert f"     1 {' ' * 10}{'┼' * 10}{' ' * 10}{'╳' * 10}\n" in said
    assert f"\nstream {'━' * 12}{'┼' * 6}{'━' * 13}{'╳' * 9}\n" in said
    assert "╳ gap  ┼ gap, repaired\n" in said
    words = " ".join(said.split())
    assert "gap 12.000 to 18.000 s, 6.000 s: after a Task that succeeded; repaired gap 31.000" in words
    assert "by the ledger, 1 of 1 stream had gaps\n  1 demo: 2 gaps, 20.000 s, 1 repaired\n" in said
    drawn = (tmp_path / "out.svg").read_text()
    # In the legend, and through one gap of the execution and one of the stream.
    assert drawn.count('<rect class="repaired"') == 3
    assert drawn.count('<rect class="gap"') == 6
    assert "10.000 to 20.000 s, 10 s, after reset; repaired" in drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give either files with histories or --execution ARN."),
        (["{file}", "--execution", "x"], "Give either files with histories or --execution ARN."),
        (["{file}"], "{file} is not a history: events[0].id must be a whole number of at least 1."),
        (
            ["nosuch"],
            "the history nosuch cannot be read: No such file or directory. For a stream, give --execution ARN, which "
            "`streamkeeper status nosuch --json` prints (for a stream in parts, that of a part).",
        ),
        (["{file}", "--memory-mb", "1"], "--memory-mb must be a whole number from 128 to 10240, not '1'."),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 2, and the sentence names the option or file and what would be right."""
    names = {"file": str(tmp_path / "broken.json")}
    (tmp_path / "broken.json").write_text('{"events": [{}]}')
    assert main(["timeline", *(argument.format(**names) for argument in arguments)]) == 2
    assert capsys.readouterr().err == f"streamkeeper: {message.format(**names)}\n"


@pytest.mark.usefixtures("endpoint")
def test_a_refusal_of_aws_is_one_sentence(
    arn: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is one sentence: an invalid ARN, a missing execution, and an endpoint at which nothing listens."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for asked, words in (
        ("once", "--execution must be the ARN"), (f"{arn}-not", "ExecutionDoesNotExist"), (arn, "cannot be read: "),
    ):  # fmt: skip
        if asked == arn:
            monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        assert main(["timeline", "--execution", asked]) == 2
        # Beside the line of progress, which comes after a second.
        (said,) = (line for line in capsys.readouterr().err.splitlines() if not line.endswith("…"))
        assert words in said
