"""`streamkeeper redrive` on a stage played by the embedded AWS, with a real queue, tables and bucket."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from handlers.framing.oversize import Oversize
from handlers.redrive.letters import Message
from handlers.redrive.redriving import Redrive, Stage
from local.cli import INTERRUPTED, main
from local.redrive.stage import connect_redrive_stage
from tests.handlers.aws import Aws, fail_with
from tests.handlers.store.events import an_event, noise
from tests.local.deployed_stage import Deployed

STAGE = "redriven"
REJECTED = {"stream": "demo:off", "execution": "arn", "error": "StreamRejected", "cause": "HTTP status 403"}


@pytest.fixture
def stage(aws: Aws) -> Iterator[Deployed]:
    """A stage without events and messages."""
    deployed = Deployed(aws, STAGE)
    yield deployed
    deployed.close()


def redrive(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, Any]:
    """Runs the command; returns the exit status and the printed JSON."""
    status = main(["redrive", "--stage", STAGE, "--json", *options])
    said = capsys.readouterr()
    assert said.err == ""
    return status, json.loads(said.out)


def outcomes(answer: Any) -> dict[tuple[str, str | None], tuple[str, str]]:
    """Returns outcome and detail by stream and key."""
    return {(one["stream"], one["key"]): (one["outcome"], one["detail"]) for one in answer["found"]}


def test_events_are_put_back_and_the_rest_is_named(stage: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    """Two of three events are stored and their messages deleted; an oversize event and an unknown message stay."""
    large = [an_event(str(number), noise(500_000)) for number in range(2)]
    stage.write("demo:a", *large, an_event("over")._replace(data=Oversize(5_000_000, "ab" * 32, b"\0" * 100)))
    stage.send("hello")
    assert stage.waiting() == 2 * 4 + 2
    status, planned = redrive(capsys, "--dry-run")
    assert (status, planned["counts"], stage.waiting()) == (1, {"stored": 2, "left": 2}, 2 * 4 + 2)
    assert stage.marks("demo:a") == ["0", "1", "over"]
    status, done = redrive(capsys)
    assert (status, done["counts"], stage.waiting()) == (1, {"stored": 2, "left": 2}, 2)
    assert outcomes(done) == outcomes(planned)
    assert outcomes(done)["demo:a", "over"] == ("left", "only the first 100 of its 5000000 bytes were kept")
    assert outcomes(done)["", None] == ("left", "the message was not sent by Streamkeeper")
    assert stage.marks("demo:a") == ["over"]
    assert main(["redrive", "--stage", STAGE]) == 1
    said = capsys.readouterr()
    assert "left: demo:a, event over (longer than max_frame_bytes: 5000000 bytes): only the first 100 of" in said.out
    assert said.err.splitlines()[-1] == "2 messages found: 2 left."


def test_a_redrive_of_one_stream_leaves_others(stage: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    """The messages of other streams are neither printed nor touched."""
    for stream_id in ("demo:a", "demo:b"):
        stage.write(stream_id, an_event("1", noise(500_000)))
    status, done = redrive(capsys, "--stream", "demo:b")
    assert (status, list(outcomes(done)), stage.waiting()) == (0, [("demo:b", "1")], 4)


def test_a_rejected_stream_is_started_with_restart_only(stage: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    """The reason is printed; a stream that was stopped in the meantime is not started at all."""
    stage.send(json.dumps(REJECTED))
    status, done = redrive(capsys)
    assert (status, done["counts"], stage.waiting()) == (1, {"left": 1}, 1)
    assert outcomes(done) == {("demo:off", None): ("left", "the stream is started again with --restart, or by a POST")}
    assert done["found"][0]["reason"] == "StreamRejected: HTTP status 403"
    status, planned = redrive(capsys, "--restart", "--dry-run")
    assert (status, outcomes(planned), stage.waiting()) == (0, {("demo:off", None): ("started", "")}, 1)
    lease = {"PK": {"S": "demo:off"}, "SK": {"S": "lease"}, "stop": {"BOOL": True}}
    stage.aws.dynamodb.put_item(TableName=stage.control_table, Item=lease)
    status, done = redrive(capsys, "--restart")
    assert (status, stage.waiting()) == (1, 1)
    stopped = "a stop was requested since: it stays stopped until a POST starts it"
    assert outcomes(done) == {("demo:off", None): ("left", stopped)}


def test_a_rejected_stream_is_started_by_the_machine_that_answers_a_post(stage: Deployed) -> None:
    """Started by the other machine, the stream would leave its group for a function of its own. A group is left."""
    stage.send(json.dumps(REJECTED))
    stage.send(json.dumps(REJECTED | {"stream": "#7"}))
    asked: list[str] = []

    def start_sync_execution(**more: str) -> Any:
        asked.append(more["stateMachineArn"].rpartition(":")[2])
        return {"status": "SUCCEEDED", "output": '{"executionArn": "arn:new"}'}

    on = replace(connect_redrive_stage(STAGE), states=SimpleNamespace(start_sync_execution=start_sync_execution))
    found = {one.letter.stream_id: one for one in Redrive(on, restart=True, dry_run=False).outcomes(None)}
    assert (found["demo:off"].detail, asked) == ("arn:new", [f"streamkeeper-{STAGE}-start"])
    assert found["#7"].detail == "it is a group: a POST of any of its streams starts it again"


def test_an_event_that_aws_refuses_is_left(
    stage: Deployed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its message stays, others are handled, and the next run stores the event; a refused queue is one sentence."""
    stage.write("demo:a", an_event("1", noise(500_000)))
    stage.write("demo:b", an_event("1", noise(450_000)))
    with monkeypatch.context() as patch:
        patch.setattr("handlers.redrive.restore.MAX_ITEM_BYTES", 460_000)
        status, done = redrive(capsys)
    assert (status, done["counts"], stage.waiting()) == (1, {"stored": 1, "left": 1}, 4)
    assert outcomes(done)["demo:b", "1"] == ("left", "AWS refused PutItem: ValidationException")
    with monkeypatch.context() as patch:
        patch.setattr("handlers.redrive.redriving.receive_batches", lambda *_: fail_with("AccessDenied")(None))
        assert main(["redrive", "--stage", STAGE]) == 2
    assert capsys.readouterr().err.startswith("streamkeeper: The dead-letter queue cannot be read: AWS refused Receive")
    assert redrive(capsys)[0] == 0


def test_ctrl_c_gives_the_messages_back(
    stage: Deployed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After Ctrl-C messages of stored events are gone, and all others are back at once for the next run."""
    for number in range(3):
        stage.write(f"demo:{number}", an_event("1", noise(500_000)))
    delete, calls = Stage.delete, iter(range(3))

    def interrupted(on: Stage, messages: Sequence[Message]) -> None:
        if next(calls) == 1:
            raise KeyboardInterrupt
        delete(on, messages)

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "delete", interrupted)
        assert main(["redrive", "--stage", STAGE]) == INTERRUPTED
    assert stage.waiting() == 8
    # After a second of silence, progress is reported.
    assert set(capsys.readouterr().err.splitlines()) <= {"streamkeeper: reading the dead-letter queue …"}
    status, done = redrive(capsys)
    assert (status, stage.waiting(), done["counts"]) == (0, 0, {"known": 1, "stored": 1})


def test_parts_that_are_left_of_a_stored_event_are_deleted(stage: Deployed, capsys: pytest.CaptureFixture[str]) -> None:
    """A run killed between two requests leaves parts: those of a stored event are deleted, those of another stay."""
    stage.write("demo:a", an_event("1", noise(500_000)))
    (first, *_) = stage.aws.sqs.receive_message(QueueUrl=stage.queue_url, VisibilityTimeout=0)["Messages"]
    stage.aws.sqs.delete_message(QueueUrl=stage.queue_url, ReceiptHandle=first["ReceiptHandle"])
    status, done = redrive(capsys)
    assert (status, outcomes(done)) == (1, {("demo:a", "1"): ("left", "1 of its 4 parts is not in the queue")})
    stage.aws.dynamodb.delete_item(TableName=stage.events_table, Key={"PK": {"S": "demo:a"}, "SK": {"S": "1"}})
    stage.write("demo:a", an_event("1"))
    status, done = redrive(capsys)
    assert (status, outcomes(done), stage.waiting()) == (0, {("demo:a", "1"): ("known", "")}, 0)


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize("name", ["nowhere", "Bad Name"])
def test_a_stage_that_does_not_exist_is_named_in_one_sentence(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing stage or a bad name is one sentence; the exit status is 2."""
    assert main(["redrive", "--stage", name]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n"), name in said.err) == ("", 1, True)


def test_an_address_without_a_stream_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """With --url a stream is required, because an API handles the messages of one stream only."""
    assert main(["redrive", "--url", "http://127.0.0.1:1"]) == 2
    assert capsys.readouterr().err.startswith("streamkeeper: --url works only with a STREAM; ")
