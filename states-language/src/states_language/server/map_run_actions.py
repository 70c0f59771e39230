"""Answers the actions on Map Runs, and lists and describes the executions of one."""

from collections.abc import Callable, Iterator
from typing import Any

from states_language.distributed.report import MapRunReport
from states_language.place import PERIOD_MS
from states_language.server.executions import Executions
from states_language.server.journals import MAP_RUN_NOT_OPEN, TOO_OLD, reason_not_ended
from states_language.server.known_executions import KnownExecution
from states_language.server.requests import Actions, Answer, Parameters, Refusal, page, require_arn


class MapRunActions(Actions):
    def __init__(self, executions: Executions) -> None:
        self._executions = executions

    def _list_map_runs(self, parameters: Parameters) -> Answer:
        runs = self._executions.get(require_arn(parameters, "executionArn", "execution")).map_runs
        shown, rest = page(parameters, "mapRuns", list(enumerate(runs)), lambda one: one[0])
        return {"mapRuns": [run for _, run in shown]} | rest

    def _describe_map_run(self, parameters: Parameters) -> Answer:
        return find_map_run(self._executions, require_arn(parameters, "mapRunArn", "mapRun"))

    def _update_map_run(self, parameters: Parameters) -> Answer:
        map_run_arn = require_arn(parameters, "mapRunArn", "mapRun")
        for run in _running_map_runs(self._executions):
            if run.arn == map_run_arn and run.status == "RUNNING":
                bounds = ("maxConcurrency", "toleratedFailureCount", "toleratedFailurePercentage")
                run.update(*(parameters.get(name) for name in bounds))
                return {}
        status = find_map_run(self._executions, map_run_arn)["status"]
        raise Refusal("ValidationException", f"The Map Run is {status}; only one that is RUNNING can be updated.")


def _running_map_runs(executions: Executions) -> Iterator[MapRunReport]:
    for known in executions.running():
        yield from known.live.map_runs if known.live is not None else ()


def _described_map_runs(
    executions: Executions, wanted: Callable[[MapRunReport], bool]
) -> Iterator[tuple[KnownExecution, dict[str, Any]]]:
    """Yields each execution with its Map Runs' descriptions; a running execution, only if it has a wanted Map Run.

    Describing all running Map Runs, with a thousand executions each, would block the event loop too long.
    """
    for known in executions.all():
        if known.live is None or known.earlier_runs or any(map(wanted, known.live.map_runs)):
            for run in known.map_runs:
                yield known, run


def find_map_run(executions: Executions, map_run_arn: str) -> dict[str, Any]:
    """Returns the description of a Map Run; raises Refusal for an unknown ARN."""
    for _, run in _described_map_runs(executions, lambda run: run.arn == map_run_arn):
        if run["mapRunArn"] == map_run_arn:
            return run
    raise Refusal("ResourceNotFound", f"Resource not found: '{map_run_arn}'")


def list_children(executions: Executions, parameters: Parameters) -> Answer:
    """Returns ListExecutions' answer for a Map Run, newest first: the first thousand of its executions."""
    run = find_map_run(executions, require_arn(parameters, "mapRunArn", "mapRun"))
    wanted, redriven = parameters.get("statusFilter"), parameters.get("redriveFilter")
    numbered = [
        (number, one)
        for number, one in enumerate(run["executions"])
        if wanted in (None, one["status"])
        and redriven in (None, "REDRIVEN" if one.get("redriveCount") else "NOT_REDRIVEN")
    ]
    asked = f"executions {run['mapRunArn']} {wanted} {redriven}"
    shown, rest = page(parameters, asked, numbered, lambda one: one[0], descending=True)
    return {"executions": [one | {"mapRunArn": run["mapRunArn"]} for _, one in shown]} | rest


def find_child(executions: Executions, execution_arn: str) -> tuple[Answer, list[dict[str, Any]] | None] | None:
    """Returns DescribeExecution's answer for an execution of a Map Run, and its events if they are stored."""
    if "/" not in execution_arn:
        return None
    for known, run in _described_map_runs(
        executions, lambda run: any(one.arn == execution_arn for one in run.executions)
    ):
        for one in run["executions"]:
            if one["executionArn"] == execution_arn:
                description = {name: value for name, value in one.items() if name != "events"}
                description |= {"mapRunArn": run["mapRunArn"], "redriveCount": one.get("redriveCount", 0)}
                return description | _redrive_status(executions, known, run, one), one.get("events")
    return None


def _redrive_status(
    executions: Executions, known: KnownExecution, run: dict[str, Any], one: dict[str, Any]
) -> dict[str, str]:
    """Returns whether a redrive of the parent, by the Map Run, runs this execution again, or why not."""
    reason = (
        reason_not_ended(one["status"]) or one.get("redriveStatusReason") or executions.redrive_refusal_reason(known)
    )
    if reason is None and not run.get("express") and executions.now_ms() - one["stopDate"] > PERIOD_MS:
        reason = TOO_OLD
    if reason is None and run["mapRunArn"] not in (known.open_runs or ()):
        reason = MAP_RUN_NOT_OPEN
    if reason is None:
        return {"redriveStatus": "REDRIVABLE_BY_MAP_RUN"}
    return {"redriveStatus": "NOT_REDRIVABLE", "redriveStatusReason": reason}


def stop_child(executions: Executions, execution_arn: str, error: str | None, cause: str | None) -> int | None:
    """Aborts an execution of a Map Run if it runs, and returns the time of its end; None for any other execution."""
    for run in _running_map_runs(executions) if "/" in execution_arn else ():
        for one in run.running.values():
            if one.arn == execution_arn:
                one.stop(error, cause)
                return one.stopped_ms
    ended = find_child(executions, execution_arn)
    return None if ended is None else int(ended[0]["stopDate"])
