"""Starts a stream of a stage through its API, makes it hand over once, and stops it.

Normally a stream hands over every quarter of an hour, so the handover is forced as by an upgrade. The successor of its
execution is started and connects beside the older connection, which then ends. Invariants: a connected stream is left
alone; a started stream is stopped, whatever happens in between.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from handlers.connection.orphans import start_input
from handlers.store.leases import Leases
from handlers.store.typed_values import read_text
from handlers.upgrade.upgrade_steps import successor_name
from local.api_client.http_client import LOCAL_HOST, Api
from local.doctor.account_facts import Account
from local.doctor.findings import Finding, NoAnswer, State
from local.doctor.stage_template import DeployedStage
from local.options import read_port
from local.streams.api_session import ApiSession
from local.user_error import UserError
from streamkeeper.exceptions import NotFound, Refused
from streamkeeper.transport import path_of

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
