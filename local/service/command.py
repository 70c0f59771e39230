"""The verb `run`: reads the environment, starts the service, and ends it on a signal.

Invariant: nothing is started before every port, the template and the data folder are known to be usable.
"""

import argparse
import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from local import garbage_collection, listener
from local.aws_endpoints import OWN_KEYS, check_endpoint_variables, needs_embedded
from local.checkout import IS_CHECKOUT
from local.listener import HOST, bind, port_of
from local.metrics import export
from local.permissions.guard import RECORD, is_enforced
from local.profiles import folders, profile_files
from local.service import capacity, embedded_aws, osls
from local.service.backend import Sockets
from local.service.embedded_aws import lock, try_lock
from local.service.lifecycle import Service
from local.service.live_view import Screen
from local.service.redeploy import Redeployment, delivering_profiles
from local.stack import Route
from local.template import REGION
from local.terminal import UserError, read_port

_FORCED = 1
_ONE_REQUEST_S = 0.5


@dataclass(frozen=True)
class Options:
    """The options in the environment; `profiles` is the folder of the user's own."""

    stage: str
    port: int
    data: Path
    profiles: Path | None = None


def read_options(environment: Mapping[str, str]) -> Options:
    """Returns the options, by default stage local, port 3000, folder .streamkeeper; raises UserError for a bad one."""
    port = read_port(environment)
    data = environment.get("STREAMKEEPER_DATA") or ".streamkeeper"
    if data.isspace():
        raise UserError("STREAMKEEPER_DATA must be a folder, not blank.")
    # A bad endpoint or number is reported before anything is started.
    check_endpoint_variables(environment, range(port, port + 3))
    capacity.read(environment)
    is_enforced(environment)
    listener.allowed_hosts(environment)
    export.read_target(environment)
    profile_files.check_upstreams(folders.known_profiles(environment).values(), environment)
    return Options(
        stage=environment.get("STREAMKEEPER_STAGE") or "local",
        port=port,
        data=Path(data),
        profiles=folders.own_folder(environment),
    )


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "run",
        description="Runs the whole service on this machine until Ctrl-C: API, functions, tables, streams.",
        epilog="Environment: PORT (3000), STREAMKEEPER_DATA (.streamkeeper/), STREAMKEEPER_STAGE (local).",
    )
    folders.add(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if a signal ended the service, 1 if it failed; raises UserError."""
    environment = folders.environment_of(arguments)
    options = read_options(environment)
    osls.check(options.stage)
    screen = Screen()
    # A run that waits for the data folder finds the ports free.
    with contextlib.ExitStack() as locked, contextlib.ExitStack() as held:
        locked.callback(screen.close)
        sockets = _bind(options.port, held)
        screen.print_lines(f"Streamkeeper is starting, stage {options.stage} ...")
        delivers_own = options.profiles is not None and bool(delivering_profiles(options.profiles))
        template = osls.template(options.stage, delivers=delivers_own)
        # The folder comes last, so that a failed start leaves none behind.
        lock_file = try_lock(options.data)
        if lock_file is None:
            # Meanwhile no request on the ports would be answered.
            held.close()
            screen.print_lines(f"waiting for another run to release the data folder {options.data} ...")
            lock_file = lock(options.data)
            sockets = _bind(options.port, held)
        locked.callback(lock_file.close)
        # Nearly everything that a start creates stays; `settle` resumes garbage collection afterwards.
        with garbage_collection.no_garbage_collection():
            return asyncio.run(_serve(options, template, sockets, lock_file, environment, screen))


def _bind(port: int, held: contextlib.ExitStack) -> Sockets:
    """Returns the sockets, which `held` closes."""
    purposes = ("the HTTP API", "the AWS endpoint", "the demonstration streams")
    api, aws, upstreams = (held.enter_context(bind(port + offset, one)) for offset, one in enumerate(purposes))
    embedded = held.enter_context(bind(0, "the embedded AWS")) if needs_embedded(os.environ) else None
    return Sockets(api, aws, upstreams, embedded)


async def _serve(
    options: Options,
    template: Mapping[str, Any],
    sockets: Sockets,
    lock_file: IO[str],
    environment: Mapping[str, str],
    screen: Screen,
) -> int:
    end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    service = Service(
        options.data, template, sockets, lock_file, environment, screen, lambda: _set_status(end, _FORCED)
    )
    _listen_to_signals(end)
    following: asyncio.Task[None] | None = None
    try:
        starting = asyncio.create_task(service.start())
        either: set[asyncio.Future[Any]] = {starting, end}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            print_welcome(options, service, screen)
            following = asyncio.create_task(
                Redeployment(
                    service.deploy_code, service.deploy_template, options.stage, screen.say, own=options.profiles
                ).run()
            )
        else:
            starting.cancel()
        status = await end
        screen.close()
        screen.say("stopping; Ctrl-C again to stop at once")
        return status
    finally:
        _set_status(end, _FORCED)
        if following is not None:
            following.cancel()
        await service.stop()


def _listen_to_signals(end: "asyncio.Future[int]") -> None:
    """Makes the first signal end the service, and a second one the process."""
    loop = asyncio.get_running_loop()
    first_s: list[float] = []

    def on_signal() -> None:
        # Two signals at once are one stop request; a terminal and its process may both send one.
        if first_s and loop.time() - first_s[0] > _ONE_REQUEST_S:
            # The children end by themselves once this process has ended.
            os._exit(_FORCED)
        first_s.append(loop.time())
        _set_status(end, 0)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # nohup(1) makes its program ignore SIGHUP, so that the service outlives its terminal. The shell of a script
        # makes background programs ignore SIGINT; but Ctrl-C there is meant for all, and the service must end too.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            loop.add_signal_handler(number, on_signal)


def _set_status(end: "asyncio.Future[int]", status: int) -> None:
    if not end.done():
        end.set_result(status)


def print_welcome(options: Options, service: Service, screen: Screen) -> None:
    """Prints what runs where, what it may lose, and what to do next."""
    api = f"http://{HOST}:{options.port}"
    aws = f"http://{HOST}:{port_of(service.sockets.aws)}"
    streams = f"http://{HOST}:{port_of(service.sockets.upstreams)}"
    path = next((route.path for route in service.stack.routes if isinstance(route, Route)), "/connections/{streamId}")
    is_open = service.signing_keys is None
    lines = [
        "",
        # A browser does not sign.
        *([f"  Open first     {api}/console  (in a browser: see, start and stop streams)"] if is_open else []),
        f"  HTTP API       {api}  ({'no key or signature is needed' if is_open else 'requires signatures'})",
        f"  AWS endpoint   {aws}  (Step Functions, Lambda, DynamoDB, SQS and the rest)",
        f"  Demo streams   {streams}",
        f"  Metrics        {api}/metrics  (Prometheus; OTEL_EXPORTER_OTLP_ENDPOINT sends them to OpenTelemetry)",
        f"  Capacity       {service.capacity.sentence}",
        *([] if IS_CHECKOUT else [f"  Your profiles  {options.profiles}  (`streamkeeper profile new URL` writes one)"]),
        f"  Data folder    {options.data}  (functions' logs are in {options.data / 'logs'})",
    ]
    if service.edges.is_enforcing:
        lines += [f"  Permissions    enforced; what was requested is in {options.data / RECORD}"]
    if not service.backend.is_durable:
        lines += [
            "",
            "  The tables are saved about once a second: kill -9 may cost the writes since the last save.",
            f"  {embedded_aws.dynoxide_remedy()}",
        ]
    lines += _first_commands(api, path.replace("{streamId}", "demo"), service.signing_keys)
    lines += ["", "A changed file is deployed at once. Ctrl-C stops the service; streams resume at the next start.", ""]
    screen.print_lines("\n".join(lines))


def _first_commands(api: str, demo: str, keys: tuple[str, str] | None) -> list[str]:
    """The commands to start, see and stop a stream; `keys` are an id and a secret if requests are signed."""
    lines = ["", "Type in another terminal:"]
    if keys is None:
        asked = [f"curl -X POST {api}{demo}", f"curl {api}{demo}"]
        asked += [f"curl '{api}{demo}/events?limit=3'", f"curl -X DELETE {api}{demo}"]
    else:
        request = ".venv/bin/streamkeeper request --sign"
        asked = [f"{request} POST {demo}", f"{request} GET {demo}"]
        asked += [f"{request} GET '{demo}/events?limit=3'", f"{request} DELETE {demo}"]
        lines += [f"  export STREAMKEEPER_URL={api} AWS_REGION={REGION}"]
        # The user's own secret is known in the user's terminals, and must not be shown.
        if keys == OWN_KEYS:
            lines += [f"  export AWS_ACCESS_KEY_ID={keys[0]} AWS_SECRET_ACCESS_KEY={keys[1]}"]
    start, *others = (f"  {command}" for command in asked)
    return [*lines, start, "and then, to see its status and its events, and to stop it:", *others]
