"""`python -m states_language.server`: answers Step Functions' API on this machine until Ctrl-C.

The answers that --functions names perform Tasks, as in `python -m states_language run`. It asks other functions and
services only at the endpoints that the SDK's own variables name (AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_LAMBDA …).
Invariant: all state is in one folder, so a server that starts there again knows its machines and executions.
"""

import argparse
import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import botocore.session

from states_language import server, workbench
from states_language.clock import RealClock
from states_language.definition.fields import DefinitionError
from states_language.failures import TaskFailure
from states_language.server.http_task import Connection, by_name
from states_language.server.stack import template_machines
from states_language.server.threaded import HOST, serve_application
from states_language.tasks.calls import Perform
from states_language.tasks.lambdas import Functions
from states_language.tasks.stubs import Answer, answer_name
from states_language.workbench import Mistake, files
from states_language.workbench.files import read_answers, read_mock_config

DEFAULT_RETENTION = server.Retention()
PORT, FOLDER = 8083, Path(".states-language")
_KEYS = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    made = argparse.ArgumentParser(
        prog="python -m states_language.server",
        description="Answers Step Functions' API on this machine, for boto3, the AWS command line and every SDK.",
        epilog="Functions and services that --functions does not name are asked at AWS_ENDPOINT_URL_<SERVICE> or "
        "AWS_ENDPOINT_URL. Exit status: 0 it was ended (Ctrl-C, SIGTERM), 2 it could not begin.",
    )
    made.add_argument("--port", type=int, default=PORT, help=f"the port, or 0 for any free one ({PORT})")
    made.add_argument("--host", default=HOST, help=f"the address to listen on ({HOST}); any caller is accepted")
    made.add_argument(
        "--data", type=Path, default=FOLDER, metavar="FOLDER", help=f"where it keeps its state ({FOLDER})"
    )
    made.add_argument("--virtual-time", action="store_true", help="skip the time of Waits and retries")
    made.add_argument("--template", metavar="FILE", help="a template of SAM or CloudFormation with state machines")
    files.add_substitute(made)
    made.add_argument(
        "--keep", type=int, default=DEFAULT_RETENTION.count, metavar="N", help="ended executions to keep (%(default)s)"
    )
    made.add_argument(
        "--keep-days",
        type=float,
        default=DEFAULT_RETENTION.age_s / 86_400,
        metavar="DAYS",
        help="and for how long (%(default)g)",
    )
    made.add_argument("--connections", type=Path, metavar="FILE", help="the connections of http:invoke by name or ARN")
    made.add_argument(
        "--mocks",
        metavar="FILE",
        default=os.environ.get("SFN_MOCK_CONFIG"),
        help="Step Functions Local's MockConfigFile.json, for starts of ARN#TESTCASE (SFN_MOCK_CONFIG)",
    )
    made.add_argument("--functions", metavar="FUNCTIONS", help="a Python module or .py, or a .yml of answers by name")
    return made


class FunctionAnswer(NamedTuple):
    """What a function at an endpoint answered."""

    payload: bytes
    function_error: str | None


class Endpoints:
    """The services at the endpoints that the environment names."""

    def __init__(self) -> None:
        self._session = botocore.session.Session()
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def client(self, service: str) -> Any:
        """Return a service's client, which any thread may use; raises TaskFailure if no endpoint is named."""
        with self._lock:
            if service not in self._clients:
                spelled = self._session.get_service_model(service).service_id.replace(" ", "_").upper()
                variable = f"AWS_ENDPOINT_URL_{spelled}"
                if not (os.environ.get(variable) or os.environ.get("AWS_ENDPOINT_URL")):
                    reason = f"--functions does not name the call, and neither AWS_ENDPOINT_URL nor {variable} is set."
                    raise TaskFailure("States.Runtime", reason)
                keys = {} if self._session.get_credentials() else _KEYS
                region = os.environ.get("AWS_DEFAULT_REGION", server.REGION)
                self._clients[service] = self._session.create_client(service, region_name=region, **keys)
            return self._clients[service]

    async def invoke(self, name: str, payload: bytes) -> FunctionAnswer:
        """Return Lambda's answer at its endpoint; raises TaskFailure if none is named, and botocore's errors."""
        try:
            client = await asyncio.to_thread(self.client, "lambda")
        except TaskFailure as problem:
            raise TaskFailure("Lambda.ResourceNotFoundException", problem.cause) from None
        answer = await asyncio.to_thread(client.invoke, FunctionName=name, Payload=payload)
        return FunctionAnswer(await asyncio.to_thread(answer["Payload"].read), answer.get("FunctionError"))


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the folder: a second server would take what the first one runs for aborted. Raises Mistake."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as problem:
        raise Mistake(f"The folder {folder} cannot be used: {problem.strerror}.") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Mistake(f"Another server uses the folder {folder}: end that, or choose another by --data.") from None
        yield


async def serve(arguments: argparse.Namespace, answers: Mapping[str, Answer], ended: asyncio.Event) -> None:
    """Serve until `ended` is set; raises Mistake if the server cannot begin."""
    clock, endpoints = RealClock(), Endpoints()
    retention = server.Retention(arguments.keep, round(arguments.keep_days * 86_400))
    try:
        machines = template_machines(arguments.template, dict(arguments.substitute or ())) if arguments.template else []
        states = server.StepFunctions(
            arguments.data,
            clock,
            server.loaded_stack(machines),
            retention=retention,
            virtual_time=arguments.virtual_time,
        )
    except (DefinitionError, server.Refusal) as problem:
        raise Mistake(f"{arguments.template}: {problem}") from None
    connections = by_name(_read_connections(arguments.connections))
    tasks = server.TaskPerformer(endpoints.invoke, endpoints.client, states, connections)

    def answer_calls(answers: Mapping[str, Answer], other: Perform) -> Perform:
        functions = Functions(clock, answers, tokens=states.tokens)
        return lambda call: (functions.perform if answer_name(call, answers) in answers else other)(call)

    perform = states.executions.perform = answer_calls(answers, tasks.perform)
    if arguments.mocks:
        config = read_mock_config(arguments.mocks, lambda config: config)
        states.executions.test_case = lambda machine, case: answer_calls(config.answers(machine, case), perform)
    async with serve_application(server.application(states), arguments.port, arguments.host) as address:
        _print_progress(f"reading the executions in {arguments.data} …")
        left = states.executions.restore()
        if left:
            _print_progress(
                f"{len(left)} that ran when the server ended are ABORTED; RedriveExecution cannot go on with these."
            )
        server.settle()
        for machine in machines:
            _print_progress(f"{machine.name} of {arguments.template} is {machine.arn}")
        _print_progress(f"Step Functions answers at {address}; Ctrl-C ends it.")
        try:
            await ended.wait()
        finally:
            _print_progress("ending: what runs is ABORTED when it is started again.")
            states.executions.close()
            states.close()
            tasks.close()


def _read_connections(path: Path | None) -> dict[str, Connection]:
    found = {} if path is None else files.data(path, "The file of connections")
    if isinstance(found, dict) and all(isinstance(one, dict) and "AuthorizationType" in one for one in found.values()):
        return found
    raise Mistake(f"{path}: each name needs what CreateConnection takes, AuthorizationType and AuthParameters.")


def _print_progress(sentence: str) -> None:
    print(f"states-language: {sentence}", file=sys.stderr, flush=True)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM, and return 0; raises Mistake."""
    if not (arguments.keep >= 0 and arguments.keep_days >= 0):
        raise Mistake("--keep and --keep-days must be 0 or more.")
    answers = read_answers(arguments.functions)

    async def until_ended() -> None:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        await serve(arguments, answers, ended)

    with lock_folder(arguments.data):
        asyncio.run(until_ended())
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status of a command line."""
    return workbench.main(parser(), run, argv)


if __name__ == "__main__":
    sys.exit(main())
