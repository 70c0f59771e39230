"""The whole service as a person starts it: a real process, sockets, subprocesses and tables, with limits of seconds."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from bench.harness import descendants
from local.aws_endpoints import needs_embedded
from local.cli import main
from local.listener import bind
from local.service import embedded_aws, osls
from local.service.backend import Sockets
from local.service.command import Options, print_welcome
from local.service.embedded_aws import lock
from local.service.lifecycle import Service
from local.service.live_view import Screen
from tests import harness
from tests.harness import free_port
from tests.local.support import PROJECT, environment, until

PREFIX = "arn:aws:states:us-east-1:000000000000"
MACHINE = f"{PREFIX}:stateMachine:streamkeeper-test-connections"


class Run(harness.Service):
    """A run that is killed and started again, with the stream `demo`; a warning is an error."""

    def ids(self) -> list[int]:
        """Returns the numbers of the stored events, in order."""
        return sorted(int(item["SK"]) for item in self.items("events", "demo", "1"))

    def end(self, with_signal: signal.Signals = signal.SIGTERM) -> int:
        """Ends the run and returns its exit status; nothing is left, and a stop prints no traceback."""
        status = super().end(with_signal)
        assert "Traceback" not in self.log, self.log
        return status


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Run]:
    """A service that is ended however the test ends."""
    run = Run(tmp_path, PYTHONWARNINGS="error")
    yield run
    if run.process is not None and run.process.poll() is None:
        run.end(signal.SIGKILL)


def is_contiguous(ids: list[int]) -> bool:
    """Returns whether the ids have no hole, and none comes twice."""
    return ids == list(range(ids[0], ids[0] + len(ids)))


@pytest.mark.long
@pytest.mark.cpu(10)
def test_a_stream_continues_if_its_table_is_set_back_while_it_runs(service: Run) -> None:
    """A running stream gets an older lease, then SIGKILL and SIGTERM: no id is missing."""
    service.start()
    service.post("demo")
    assert until(service.ids, 5), "no event within five seconds of the POST"
    older = service.raw("control", "demo", "lease")
    service.end(signal.SIGKILL)
    service.start()
    states = service.aws("stepfunctions")
    assert until(lambda: "resumed: demo" in service.log)
    (successor,) = states.list_executions(stateMachineArn=MACHINE, statusFilter="RUNNING")["executions"]
    after = service.ids()
    assert until(lambda: service.ids()[-1] > after[-1] + 10, 15)
    after = service.ids()
    # The running execution finds another in the lease, which has ended.
    for item in older:
        service.aws("dynamodb").put_item(TableName="streamkeeper-test-control", Item=item)
    assert until(lambda: "ALERT: the lease of demo names an execution" in service.log, 20)
    (mended,) = states.list_executions(stateMachineArn=MACHINE, statusFilter="RUNNING")["executions"]
    assert f"{mended['name']} continues the stream" in service.log
    assert mended["name"].endswith("-orphan-0")
    assert json.loads(states.describe_execution(executionArn=successor["executionArn"])["output"]) == {
        "status": "superseded"
    }
    assert until(lambda: service.ids()[-1] > after[-1] + 10, 15)
    after = service.ids()

    assert service.end(signal.SIGTERM) == 0
    service.start()
    assert until(lambda: service.ids()[-1] > after[-1] + 10, 15)
    assert is_contiguous(service.ids())
    assert states.describe_execution(executionArn=mended["executionArn"])["status"] == "ABORTED"
    assert service.end(signal.SIGINT) == 0


def has_kept(before: list[int], service: Run) -> bool:
    """Returns whether the service answers again and still has what was stored before."""
    with contextlib.suppress(BotoCoreError, ClientError):
        return service.ids()[: len(before)] == before
    return False


@pytest.mark.cpu(7)
def test_no_event_is_lost_whichever_process_is_killed(service: Run) -> None:
    """SIGKILL hits a function, the database, the embedded AWS (back at its last save), and the run: no event is lost.

    At first the data folder is in use: one line says at once what the start waits for, and no port is held meanwhile.
    The run is in the background of a script, under nohup: the end of the terminal does not end it, Ctrl-C does. One
    POST is enough: the next run resumes the stream. tests/real/test_couchdb.py has handovers.
    """
    data = service.folder / "data"
    held = lock(data)
    try:
        service.launch("bash", "-c", 'trap "" INT HUP; exec "$@"', "bash")
        line = f"waiting for another run to release the data folder {data} ..."
        assert until(lambda: line in service.log.splitlines(), 10), service.log
        for offset in range(3):
            bind(service.port + offset, "a test").close()
    finally:
        held.close()
    assert until(service.answers, 30), service.log
    assert service.process is not None
    service.process.send_signal(signal.SIGHUP)
    first = service.post("demo")["executionArn"]
    assert until(lambda: len(service.ids()) > 3, 10)
    os.kill(_child(service, b"bootstrap.py"), signal.SIGKILL)
    # A second POST starts nothing, and names the execution that keeps the stream.
    second = service.post("demo")
    assert (second["executionArn"], second["already_running"]) == (first, True)
    killed_at = len(service.ids())
    assert until(lambda: len(service.ids()) > killed_at + 3, 10)
    before = service.ids()
    os.kill(_child(service, b"/dynoxide"), signal.SIGKILL)
    assert until(lambda: has_kept(before, service), 20)
    os.kill(_child(service, b"embedded_aws_child"), signal.SIGKILL)
    assert until(lambda: len(service.ids()) > len(before) + 10, 20), service.log
    before = service.ids()
    assert is_contiguous(before)
    assert "the embedded DynamoDB died (-9)" in service.log
    assert "it restarts from its last save" in service.log

    service.end(signal.SIGKILL)
    service.launch("bash", "-c", 'trap "" INT HUP; exec "$@"', "bash")
    assert until(lambda: "resumed: demo" in service.log, 30), service.log
    old = service.execution(first)
    assert (old["status"], old["error"]) == ("ABORTED", "LocalServiceStopped")
    assert until(lambda: service.ids()[-1] > before[-1] + 5, 15), service.log
    after = service.ids()
    assert is_contiguous(after)
    assert after[: len(before)] == before
    assert service.end(signal.SIGINT) == 0


@pytest.fixture
def welcomed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[Any, dict[str, str]], list[str]]:
    """Returns the last lines of a start with this template and the user's variables."""

    def lines(template: Any, variables: dict[str, str]) -> list[str]:
        with contextlib.ExitStack() as stack:
            api, aws, upstreams, embedded = (stack.enter_context(bind(0, "a test")) for _ in range(4))
            sockets = Sockets(api, aws, upstreams, embedded if needs_embedded(variables) else None)
            held = stack.enter_context(lock(tmp_path))
            service = Service(tmp_path, template, sockets, held, variables, Screen(), lambda: None)
            print_welcome(Options("test", 3000, tmp_path), service, Screen())
        return capsys.readouterr().out.splitlines()

    return lines


def test_a_start_without_the_database_warns_of_lost_writes(
    welcomed: Callable[[Any, dict[str, str]], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If npm has no build of the database, the embedded AWS keeps the tables, and the start warns of lost writes. With
    a user's endpoint there is no warning.
    """
    warning = "  The tables are saved about once a second: kill -9 may cost the writes since the last save."
    own = {"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:8000"}
    said = []
    for program, variables in ((PROJECT / "dynoxide", {}), (None, {}), (None, own)):
        monkeypatch.setattr(embedded_aws, "find_dynoxide", lambda _, program=program: program)
        lines = welcomed(osls.template("test"), variables)
        said.append(warning in lines)
        assert lines[1] == "  Open first     http://127.0.0.1:3000/console  (in a browser: see, start and stop streams)"
    assert said == [False, True, False]


def test_the_start_says_how_to_call_a_stage_that_requires_signatures(
    welcomed: Callable[[Any, dict[str, str]], list[str]],
) -> None:
    """The start prints the commands for signed requests, and the run's own keys; a user's secret is not printed."""
    template = json.loads(json.dumps(osls.template("test")))
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::ApiGateway::Method":
            resource["Properties"]["AuthorizationType"] = "AWS_IAM"
    secret = {"AWS_ACCESS_KEY_ID": "theirs", "AWS_SECRET_ACCESS_KEY": "hidden"}
    for variables in ({}, {"AWS_ENDPOINT_URL": "http://127.0.0.1:8000"} | secret):
        said = welcomed(template, variables)
        assert "  HTTP API       http://127.0.0.1:3000  (requires signatures)" in said
        assert not any("/console" in line for line in said)
        assert "  .venv/bin/streamkeeper request --sign POST /connections/demo" in said
        assert "  export STREAMKEEPER_URL=http://127.0.0.1:3000 AWS_REGION=us-east-1" in said
        assert ("  export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local" in said) == (not variables)
        assert not [line for line in said if "hidden" in line or "curl" in line]


@pytest.mark.long
@pytest.mark.cpu(10)
def test_a_stop_with_several_streams_is_quiet(service: Run) -> None:
    """A stop with four connected streams prints no traceback and starts no process; the streams resume later.

    A stream with a stop request does not resume, though the service ended before the stream stopped. No more streams
    resume than the machine holds, until one of them ends.
    """
    service.start()
    streams = ["demo:a", "demo:b", "demo-ndjson:a", "demo-ndjson:b"]
    for stream_id in streams:
        service.post(stream_id)
    assert until(lambda: service.log.count("is connected") >= len(streams), 20)
    assert service.ask("DELETE", streams.pop())[0] == 202
    assert service.end(signal.SIGTERM) == 0
    assert service.log.splitlines()[-1].endswith(" stopping; Ctrl-C again to stop at once")
    service.variables["STREAMKEEPER_STREAMS"] = "2"
    service.start()
    assert until(lambda: "ALERT: this machine holds" in service.log, 5)
    resumed = {line.split()[-1] for line in service.log.splitlines() if " resumed: " in line}
    assert (len(resumed), resumed < set(streams)) == (2, True)
    # The third waits, with an alert, and nothing new starts. When a stream ends, the third takes its place.
    (waiting,) = set(streams) - resumed
    full = "this machine holds about 2 streams, or groups of them (STREAMKEEPER_STREAMS says so)"
    assert until(lambda: f"  Capacity       {full}" in service.log.splitlines(), 5)
    assert f"ALERT: {full}, so these are not resumed before there is room: {waiting}" in service.log
    assert service.ask("POST", "demo:new")[1]["detail"].startswith("This machine holds 2 streams")
    assert service.ask("DELETE", resumed.pop())[0] == 202
    assert until(lambda: f"{waiting}: lane B is connected" in service.log, 30), service.log
    assert service.end(signal.SIGTERM) == 0


TAKEN = "needed for the AWS endpoint, is in use; stop the process that listens there or set PORT to another number."


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, TAKEN),
        ({"PORT": "many"}, "PORT must be a number from 1 to 65533, not 'many'"),
        ({"PORT": "9" * 5000}, f"PORT must be a number from 1 to 65533, not '{'9' * 20}'"),
        ({"STREAMKEEPER_STAGE": "none"}, "There is no stage 'none'"),
        ({"AWS_ENDPOINT_URL_DYNAMODB": "garbage"}, "AWS_ENDPOINT_URL_DYNAMODB must be the URL of an endpoint"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:port"}, "AWS_ENDPOINT_URL must be the URL of an endpoint"),
        ({"STREAMKEEPER_DATA": "/dev/null/x"}, "The data folder /dev/null/x cannot be used"),
        ({"STREAMKEEPER_PERMISSIONS": "yes"}, "STREAMKEEPER_PERMISSIONS must be enforce, or not set, not 'yes'."),
        ({"STREAMKEEPER_DATA": " ", "STREAMKEEPER_STAGE": "none"}, "STREAMKEEPER_DATA must be a folder, not blank."),
    ],
)
def test_a_bad_option_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
    words: str,
) -> None:
    """One sentence names the variable's problem, or the taken port; the exit status is 2, and no folder is left."""
    port = free_port()
    usual = {"PORT": str(port), "STREAMKEEPER_STAGE": "test", "STREAMKEEPER_DATA": str(tmp_path / "data")}
    for name, value in environment(**(usual | variables)).items():
        monkeypatch.setenv(name, value)
    with contextlib.nullcontext() if variables else socket.create_server(("127.0.0.1", port + 1)):
        status, said = main(["run"]), capsys.readouterr()
    assert (status, len(said.err.splitlines()), words in said.err) == (2, 1, True), said.err
    assert variables or said.out == ""
    assert not (tmp_path / "data").exists()


def _child(service: Run, part: bytes) -> int:
    """Returns the child of the service whose command line contains `part`."""
    assert service.process is not None
    return next(pid for pid in descendants(service.process.pid) if part in Path(f"/proc/{pid}/cmdline").read_bytes())
