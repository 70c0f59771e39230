"""The verb `doctor`: checks a stage, with a line for each check, and mends what has drifted.

It changes nothing without --repair, or --demo, which starts a stream. Invariants: after a repair all facts are read
again before the findings are printed; a demonstration that was started is stopped, even after Ctrl-C.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from handlers.api.verdict import plural
from handlers.connection.orphans import start_input
from handlers.store.leases import Leases
from handlers.store.typed_values import read_text
from handlers.upgrade.upgrade_steps import successor_name
from local.api_client.http_client import LOCAL_HOST, Api
from local.costs import prices
from local.doctor import fleet_checks, stage_checks
from local.doctor.account_facts import LOCAL_SERVICES, Account, Facts, collect_facts
from local.doctor.findings import Finding, NoAnswer, State
from local.doctor.stage_template import DeployedStage, read_deployed_stage, read_local_stage
from local.stage_clients import client_factory_of, connect_to_stage
from local.streams import api_session
from local.streams.api_session import ApiSession
from local.terminal import UserError, print_line, printable, read_port, report_if_slow
from streamkeeper.exceptions import NotFound, Refused
from streamkeeper.transport import path_of

WELL, WRONG = 0, 1
# A repair may wait for another: a mapping for the stream, a stream for the table. How often to check again.
ROUNDS, REST_S = 15, 2.0


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "doctor",
        description="Checks a stage in its account: quotas against the needs of the fleet, tables, functions, "
        "versions, API, alarms, delivery and, through the function that keeps streams connected, secrets and "
        "upstreams. Each check prints one line: the actual value, the expected one, and what to do. Without --repair "
        "nothing changes.",
        epilog="Exit status: 0 all is well, 1 something is wrong or could not be checked, 2 a mistake in the command "
        "or no run on this machine. "
        "Without --stage, PORT (3000) and STREAMKEEPER_STAGE (local) choose the run on this machine. "
        "docs/doctor.md says which permissions it needs.",
    )
    parser.add_argument("--stage", metavar="S", help="a deployed stage (default: the run on this machine)")
    parser.add_argument("--repair", action="store_true", help="reset what has drifted from the template")
    parser.add_argument(
        "--demo",
        metavar="STREAM",
        nargs="?",
        const="",
        help="also start a stream, let it hand over once, and stop it (default: a demonstration stream)",
    )
    parser.add_argument("--url", metavar="ADDRESS", help="the API's address for --demo (default: the stack's own)")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each check")
    parser.set_defaults(run=api_session.print_refusals(run))


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if all is well, or else 1; raises UserError."""
    stage, clients = client_factory_of(arguments.stage)
    account = Account(clients, LOCAL_SERVICES if arguments.stage is None else None)
    with report_if_slow("checking the account …"):
        if arguments.stage is None:
            connect_to_stage(None)
        deployed = (
            read_local_stage(stage)
            if arguments.stage is None
            else read_deployed_stage(clients("cloudformation"), stage)
        )

        facts: Facts = {}

        def check() -> list[Finding]:
            facts.update(collect_facts(account, deployed))
            return [
                *stage_checks.check_stage(deployed, facts),
                *fleet_checks.check_fleet(deployed, facts, prices.read()),
            ]

        found = _repair(account, check) if arguments.repair else check()

    def print_finding(finding: Finding) -> None:
        if arguments.json:
            print(json.dumps(finding.as_json()), flush=True)
        else:
            print_line(finding.line(), 7)

    for finding in found:
        print_finding(finding)
    if arguments.demo is not None:
        api = api_of(account, deployed, arguments.url)
        stream_id = choose_stream(arguments.demo, facts["profiles"])
        with report_if_slow(f"starting {stream_id}; its handover takes some seconds …"):
            for finding in run_demo(api, account, deployed, stream_id):
                found.append(finding)
                print_finding(finding)
    ill = [one for one in found if not one.is_well]
    unknown = sum(one.state is State.UNKNOWN for one in ill)
    words = "all is well" if not ill else f"{len(ill) - unknown} wrong, {unknown} not known"
    print(f"{plural(len(found), 'check')}: {words}", file=sys.stderr)
    return WRONG if ill else WELL


def _repair(account: Account, check: Callable[[], list[Finding]]) -> list[Finding]:
    """Returns the findings once nothing more can be mended, or mending does not help.

    An accepted request is not repeated; a refused one is, because a table takes one change at a time.
    """
    sent: set[str] = set()
    for _ in range(ROUNDS):
        found = check()
        wrong = [(one.what, one.mend) for one in found if one.state is State.WRONG and one.mend is not None]
        if not wrong:
            break
        for what, mend in wrong:
            if what in sent:
                continue
            why = account.send_mend(mend)
            sent |= set() if why else {what}
            words = f"refused, and tried again: {why}" if why else f"{mend.operation} sent"
            print(printable(f"repair {what}: {words}"), file=sys.stderr, flush=True)
        time.sleep(REST_S)
    return found


# A demonstration starts a stream of the stage through its API, makes it hand over once, and stops it. Normally a stream
# hands over every quarter of an hour, so the handover is forced as by an upgrade: the successor of its execution is
# started and connects beside the older connection, which then ends. A connected stream is left alone.
# A first connection may take a cold start, and then ten seconds to reach the upstream.
WITHIN_S, EVERY_S = 90.0, 0.5
# Tried if no stream is named: the demonstration, and a public stream that ships and needs no variable.
DEMONSTRATIONS = ("demo", "wikimedia:recentchange")
_ENDED = ("stopped", "ended", "rejected", "broken")
_LOG = "`streamkeeper status` says why"


def choose_stream(name: str, profiles: Any) -> str:
    """Returns the stream to start; if `name` is "", the first demonstration that the stage has."""
    known = profiles if isinstance(profiles, dict) else {}
    for stream_id in [name] if name else DEMONSTRATIONS:
        if name or "hosts" in known.get(stream_id.partition(":")[0], {}):
            return stream_id
    raise UserError("The stage has no stream for a demonstration: give --demo STREAM with one of its profiles.")


def api_of(account: Account, deployed: DeployedStage, url: str | None) -> Api:
    """Returns the stage's API, at `url` or at the stack's address, with the environment's key or the stage's own."""
    if deployed.stack is None:
        return Api(url or f"http://{LOCAL_HOST}:{read_port(os.environ)}")
    outputs = {one["OutputKey"]: one["OutputValue"] for one in deployed.stack.get("Outputs", ())}
    key = os.environ.get("STREAMKEEPER_API_KEY", "")
    keys = deployed.of_type("AWS::ApiGateway::ApiKey")
    if not key and keys:
        answer = account.request("apigateway", "get_api_key", apiKey=keys[0].name, includeValue=True)
        if isinstance(answer, NoAnswer):
            raise UserError(
                f"The stage requires a key, which cannot be read: set STREAMKEEPER_API_KEY ({answer.reason})."
            )
        key = str(answer["value"])
    return Api(url or str(outputs["ServiceEndpoint"]), key, sign=not keys)


def run_demo(api: Api, account: Account, deployed: DeployedStage, stream_id: str) -> Generator[Finding, None, None]:
    """Yields the findings one by one; a started stream is stopped even if the caller does not take them all."""
    what, path, streams = f"demonstration {stream_id}", path_of(stream_id), ApiSession(api)
    try:
        before = _status(streams, path)
    except (Refused, UserError) as problem:
        yield Finding(State.WRONG, f"{what}, API", str(problem), "answered", "docs/deploy.md#who-may-call-the-api")
        return
    if before["status"] not in _ENDED:
        fix = "Name a stopped stream: a running one is left alone"
        yield Finding(State.WRONG, what, before["status"], "stopped, or never started", fix)
        return
    try:
        streams.request("POST", path)
    except (Refused, UserError, KeyboardInterrupt) as problem:
        with contextlib.suppress(Refused, UserError):
            streams.request("DELETE", path)  # the request may have started it
        if isinstance(problem, KeyboardInterrupt):
            raise
        yield Finding(State.WRONG, f"{what}, start", str(problem).rstrip("."), "started", _LOG)
        return
    try:
        yield from _check_handover(streams, account, deployed, stream_id, what, before["generation"])
    finally:
        streams.request("DELETE", path)
    yield _wait_until(f"{what}, stop", streams, path, "stopped", lambda now: now["status"] in _ENDED)


def _check_handover(
    streams: ApiSession, account: Account, deployed: DeployedStage, stream_id: str, what: str, before: int
) -> Iterator[Finding]:
    path = path_of(stream_id)
    connected = _wait_until(f"{what}, start", streams, path, "connected", lambda now: now["holder"] is not None, before)
    yield connected
    if not connected.is_well:
        return
    first = streams.request("GET", path)
    leases = Leases(account.client("dynamodb"), deployed.id_of("ControlTable"))
    # A stream that shares a function hands over with its group.
    owner = read_text(leases.read_items([stream_id]).get(stream_id, {}), "group") or stream_id
    execution = leases.read(owner).execution
    answer = account.request(
        "stepfunctions",
        "start_execution",
        stateMachineArn=deployed.id_of("Connections"),
        name=successor_name(execution, "doctor", ""),
        input=start_input(owner, execution),
    )
    if isinstance(answer, NoAnswer):
        yield Finding(State.UNKNOWN, f"{what}, handover", f"not known: {answer.reason}")
        return

    def has_handed_over(now: dict[str, Any]) -> bool:
        return now["holder"] is not None and bool(now["holder"]["fence"] > first["holder"]["fence"])

    yield _wait_until(f"{what}, handover", streams, path, "another connection took over", has_handed_over)
    gaps = streams.request("GET", path)["open_gaps"]
    fix = "`streamkeeper gaps` lists them"
    yield Finding(State.NOTE if gaps else State.OK, f"{what}, gaps", f"{gaps} open", fix=fix if gaps else "")


def _wait_until(
    what: str, streams: ApiSession, path: str, wanted: str, holds: Callable[[dict[str, Any]], bool], before: int = 0
) -> Finding:
    """Returns the finding once the condition holds, has not held for too long, or no longer can.

    Until an execution has claimed the stream, its status is still that of the generation `before`.
    """
    begun_s = time.monotonic()
    while True:
        now = _status(streams, path)
        took_s = time.monotonic() - begun_s
        if holds(now):
            return Finding(State.OK, what, f"{wanted} after {took_s:.1f} s")
        if took_s > WITHIN_S or (now["status"] in ("rejected", "broken") and now["generation"] > before):
            reason = now["reason"] or now["verdict"]
            return Finding(State.WRONG, what, f"{now['status']} after {took_s:.0f} s: {reason}", wanted, _LOG)
        time.sleep(EVERY_S)


def _status(streams: ApiSession, path: str) -> dict[str, Any]:
    try:
        return streams.request("GET", path)
    except NotFound as unknown:
        return {"status": "stopped", "generation": 0, "holder": None, "reason": str(unknown)}
