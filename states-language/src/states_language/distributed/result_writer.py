"""ResultWriter: formats the outputs of a distributed Map, and writes them to S3, as AWS does.

Invariant: the manifest, which names the files, is written last. Source: AWS Step Functions Developer Guide,
"ResultWriter (Map)".
"""

from dataclasses import dataclass
from typing import Any

from states_language.branch import Branch
from states_language.definition.fields import Fields
from states_language.distributed.item_reader import Batcher, Reader, call_s3
from states_language.distributed.report import ChildExecution, MapRunReport
from states_language.failures import StateError
from states_language.machine import Machine
from states_language.scheduling.lanes import take_turn
from states_language.states.base import NumberField, compile_filler
from states_language.timestamps import format_timestamp
from states_language.values import compact

RESULT_WRITER_FAILED = "States.ResultWriterFailed"
PUT_OBJECT = "arn:aws:states:::s3:putObject"
TRANSFORMATIONS = ("NONE", "COMPACT", "FLATTEN")
OUTPUT_TYPES = ("JSON", "JSONL")


class Writer:
    """The field ResultWriter of a Map state."""

    def __init__(self, state: Fields) -> None:
        fields = state.child_fields(state.get("ResultWriter"), state.pointer_of("ResultWriter"))
        name = "Arguments" if fields.is_jsonata else "Parameters"
        self.has_destination = "Resource" in fields or name in fields
        if self.has_destination or "WriterConfig" not in fields:
            fields.require("Resource")
        if fields.string("Resource") != PUT_OBJECT and self.has_destination:
            raise fields.error_for("Resource", f"must be {PUT_OBJECT}")
        self._fill = compile_filler(fields, name, f"ResultWriter/{name}")
        config = fields.child_fields(fields.get("WriterConfig", {}), fields.pointer_of("WriterConfig"))
        self.transformation = _read_choice(config, "Transformation", TRANSFORMATIONS)
        self.is_jsonl = _read_choice(config, "OutputType", OUTPUT_TYPES) == "JSONL"
        config.refuse_unread("WriterConfig")
        fields.refuse_unread("ResultWriter")

    async def write(self, run: MapRunReport, raw: Any, narrowed: Any, branch: Branch) -> Any:
        """Return the manifest's place in S3, as AWS does, or the formatted outputs; raises StateError."""
        if not self.has_destination:
            results = [result for execution in run.executions for result in self._results(execution, run)]
            return "\n".join(map(compact, results)) if self.is_jsonl else results
        where = self._fill(raw, narrowed, branch)
        bucket = where.get("Bucket") if isinstance(where, dict) else None
        if not isinstance(bucket, str):
            raise StateError(RESULT_WRITER_FAILED, "The field 'Bucket' is required but was missing")
        prefix = where.get("Prefix")
        folder = f"{prefix}/{run.name}" if isinstance(prefix, str) and prefix else run.name
        files: dict[str, list[dict[str, Any]]] = {"FAILED": [], "PENDING": [], "SUCCEEDED": []}
        for kind in ("SUCCEEDED", "FAILED"):
            wanted = kind == "SUCCEEDED"
            ended = [each for each in run.executions if (each.status == "SUCCEEDED") is wanted]
            if ended:
                texts = [compact(result) for execution in ended for result in self._results(execution, run)]
                body = "\n".join(texts) if self.is_jsonl else f"[{','.join(texts)}]"
                key = f"{folder}/{kind}_0.json{'l' if self.is_jsonl else ''}"
                await call_s3(branch, "putObject", {"Bucket": bucket, "Key": key, "Body": body}, RESULT_WRITER_FAILED)
                files[kind].append({"Key": key, "Size": len(body.encode("utf-8", "surrogatepass"))})
        key = f"{folder}/manifest.json"
        manifest = compact({"DestinationBucket": bucket, "MapRunArn": run.arn, "ResultFiles": files})
        await call_s3(branch, "putObject", {"Bucket": bucket, "Key": key, "Body": manifest}, RESULT_WRITER_FAILED)
        return {"MapRunArn": run.arn, "ResultWriterDetails": {"Bucket": bucket, "Key": key}}

    def _results(self, execution: ChildExecution, run: MapRunReport) -> list[Any]:
        """Return the results of an execution; a failed one is described in full, whatever the OutputType."""
        take_turn(1)
        if self.transformation == "NONE" or execution.status != "SUCCEEDED":
            return [_describe_in_full(execution, run)]
        if self.transformation == "FLATTEN" and isinstance(execution.output, list):
            return execution.output
        return [execution.output]


def _read_choice(config: Fields, name: str, values: tuple[str, ...]) -> str:
    value = config.string(name) or values[0]
    if value not in values:
        raise config.error_for(name, f"must be one of {', '.join(values)}")
    return value


def _describe_in_full(execution: ChildExecution, run: MapRunReport) -> dict[str, Any]:
    result = {
        "ExecutionArn": execution.arn,
        "Input": execution.input_text,
        "InputDetails": {"Included": True},
        "Name": execution.name,
        "RedriveCount": execution.redrives,
        "StartDate": format_timestamp(execution.started_ms),
        "StateMachineArn": run.machine_arn,
        "Status": execution.status,
        "StopDate": format_timestamp(execution.stopped_ms or execution.started_ms),
    }
    if execution.status == "SUCCEEDED":
        return {**result, "Output": execution.output_text, "OutputDetails": {"Included": True}}
    return {**result, "Error": execution.error or "", "Cause": execution.cause or ""}


@dataclass(frozen=True)
class Distribution:
    """The fields. machine: what each execution runs. express: whether each is an Express one.

    tolerated_count, tolerated_share: how many items, or how many percent of them, may fail; none if both are absent.
    """

    machine: Machine
    express: bool
    label: str | None
    tolerated_count: NumberField
    tolerated_share: NumberField
    reader: Reader | None
    batcher: Batcher | None
    writer: Writer | None
