"""ResultWriter: the outputs of a distributed Map that are written to S3.

Decides what is written, as AWS lays it out: a file of what succeeded, one of what did not, and a manifest that names
both. Invariant: the manifest is written last, so whoever finds it finds the rest.
"""

from typing import TYPE_CHECKING, Any

from local.asl.check import Fields
from local.asl.errors import StateError
from local.asl.functions import compact
from local.asl.queryflow import Template, states_of
from local.asl.s3calls import ask
from local.asl.template import compile_template
from local.asl.timestamps import written

if TYPE_CHECKING:
    from local.asl.branch import Branch
    from local.asl.execution import Execution
    from local.asl.maprun import MapRun

FAILED = "States.ResultWriterFailed"
OBJECT = "arn:aws:states:::s3:putObject"


class Writer:
    """The field of a Map state."""

    def __init__(self, state: Fields) -> None:
        fields = state.inside(state.get("ResultWriter"), state.at("ResultWriter"))
        fields.require("Resource")
        if fields.string("Resource") != OBJECT:
            raise fields.fail("Resource", f"must be {OBJECT}")
        name = "Arguments" if fields.queries else "Parameters"
        given, where = fields.get(name, {}), fields.at(name)
        self._query = Template(given, where, f"ResultWriter/{name}") if fields.queries else None
        self._fill = None if fields.queries else compile_template(given, where)
        config = fields.inside(fields.get("WriterConfig", {}), fields.at("WriterConfig"))
        for field, only in (("Transformation", "NONE"), ("OutputType", "JSON")):
            if config.string(field) not in (None, only):
                raise config.fail(field, f"must be {only}; others are not supported")
        config.close("WriterConfig")
        fields.close("ResultWriter")

    async def write(self, run: "MapRun", raw: Any, narrowed: Any, branch: "Branch") -> Any:
        """Return where the manifest lies, as AWS tells it; raises StateError."""
        where: Any = {}
        if self._query is not None:
            where = self._query.fill(states_of(raw), branch)
        elif self._fill is not None:
            where = self._fill(narrowed, branch)
        bucket = where.get("Bucket") if isinstance(where, dict) else None
        if not isinstance(bucket, str):
            raise StateError(FAILED, "The field 'Bucket' is required but was missing")
        prefix = where.get("Prefix")
        folder = f"{prefix}/{run.name}" if isinstance(prefix, str) and prefix else run.name
        files: dict[str, list[dict[str, Any]]] = {"FAILED": [], "PENDING": [], "SUCCEEDED": []}
        for kind in ("SUCCEEDED", "FAILED"):
            well = kind == "SUCCEEDED"
            told = [_told(each, run) for each in run.executions if (each.status == "SUCCEEDED") is well]
            if told:
                key, body = f"{folder}/{kind}_0.json", compact(told)
                await ask(branch, "putObject", {"Bucket": bucket, "Key": key, "Body": body}, FAILED)
                files[kind].append({"Key": key, "Size": len(body.encode("utf-8", "surrogatepass"))})
        key = f"{folder}/manifest.json"
        manifest = compact({"DestinationBucket": bucket, "MapRunArn": run.arn, "ResultFiles": files})
        await ask(branch, "putObject", {"Bucket": bucket, "Key": key, "Body": manifest}, FAILED)
        return {"MapRunArn": run.arn, "ResultWriterDetails": {"Bucket": bucket, "Key": key}}


def _told(execution: "Execution", run: "MapRun") -> dict[str, Any]:
    told = {
        "ExecutionArn": execution.arn,
        "Input": compact(execution.input),
        "InputDetails": {"Included": True},
        "Name": execution.name,
        "RedriveCount": 0,
        "StartDate": written(execution.started_ms),
        "StateMachineArn": run.machine_arn,
        "Status": execution.status,
        "StopDate": written(execution.stopped_ms or execution.started_ms),
    }
    if execution.status == "SUCCEEDED":
        return {**told, "Output": compact(execution.output), "OutputDetails": {"Included": True}}
    return {**told, "Error": execution.error or "", "Cause": execution.cause or ""}
