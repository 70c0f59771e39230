"""The distributed Map: child executions, tolerated failures, batches, and items and results in S3."""

import asyncio
import cProfile
import gzip
import json
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from machines import distributed_map, event_types, line, machine
from states_language import Execution, Machine, RealClock, TaskCall, TaskFailure
from states_language.place import Redriven
from states_language.scheduling.lanes import BATCH_SIZE

PASS = {"Type": "Pass"}
PUT = "arn:aws:states:::s3:putObject"
ODD = (
    ("C", {"Type": "Choice", "Choices": [{"Variable": "$", "NumericEquals": 1, "Next": "F"}], "Default": "P"}),
    ("P", PASS),
    ("F", {"Type": "Fail", "Error": "Odd"}),
)


def reader_of(parameters: dict[str, str], action: str = "s3:getObject", **config: Any) -> dict[str, Any]:
    """Return an ItemReader of the bucket `b`."""
    more = {"ReaderConfig": config} if config else {}
    return {"Resource": f"arn:aws:states:::{action}", "Parameters": {"Bucket": "b", **parameters}, **more}


class Bucket:
    """S3 with one bucket, which performs the calls of Tasks."""

    def __init__(self, **objects: str | bytes) -> None:
        self.objects = objects

    async def perform(self, call: TaskCall) -> Any:
        key = call.parameters.get("Key", "")
        if call.action == "putObject":
            self.objects[key] = call.parameters["Body"]
            return {}
        if call.action == "listObjectsV2":
            names = sorted(self.objects)
            at = int(call.parameters.get("ContinuationToken", 0))
            entry = {"Key": names[at], "ETag": "e", "LastModified": "2026-01-01T00:00:00Z", "Size": at, "Owner": {}}
            return {"Contents": [entry]} | ({"NextContinuationToken": str(at + 1)} if at + 1 < len(names) else {})
        if key not in self.objects:
            raise TaskFailure("S3.NoSuchKeyException", "The specified key does not exist.")
        return {"Body": self.objects[key]}


def run_with_object(text: str | bytes, most: int | None = None, **config: Any) -> Execution:
    """Return the execution of a Map over the items of an object with this text."""
    limit: dict[str, Any] = {"MaxItems": most} if most else {}
    reader = reader_of({"Key.$": "$.key"}, **config, **limit)
    execution: Execution = machine(("M", distributed_map(ItemReader=reader))).execute(
        {"key": "k"}, perform=Bucket(k=text).perform
    )
    return execution


def test_child_executions_see_no_outer_variables() -> None:
    """Child executions of a Map Run see no outer variables, so they may use the same names."""
    inner = ("X", {**PASS, "Assign": {"v": 2}, "Next": "Y"}), ("Y", {**PASS, "InputPath": "$v"})
    outer = ("A", {**PASS, "Assign": {"v": 1}, "Next": "M"}), ("M", distributed_map(*inner))
    assert machine(*outer).execute([0]).output == [2]


@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({}, None),
        ({"ToleratedFailureCount": 0}, None),
        ({"ToleratedFailureCount": 2}, [0, 2]),
        ({"ToleratedFailurePercentage": 49.9}, None),
        ({"ToleratedFailurePercentage": 50}, [0, 2]),
        ({"ToleratedFailurePercentage": 100, "ToleratedFailureCount": 1}, None),
    ],
)
def test_a_map_run_fails_if_more_items_fail_than_tolerated(fields: dict[str, Any], output: Any) -> None:
    """If two of four items fail, the Map Run fails unless so many are tolerated. By default none are."""
    execution = machine(("M", distributed_map(*ODD, MaxConcurrency=1, **fields))).execute([0, 1, 2, 1])
    assert execution.output == output
    if output is None:
        assert (execution.error, execution.cause) == (
            "States.ExceedToleratedFailureThreshold",
            "The specified tolerated failure threshold was exceeded",
        )
        assert event_types(execution)[-3:] == ["MapRunFailed", "MapStateFailed", "ExecutionFailed"]


def test_no_child_execution_goes_on_after_the_end_of_its_map_run() -> None:
    """After too many failures or the parent's time-out, child executions are aborted and none begins."""
    wait = ("W", {"Type": "Wait", "Seconds": 100})
    choice = {"Type": "Choice", "Choices": [{"Variable": "$", "NumericEquals": 1, "Next": "F"}], "Default": "W"}
    broken = machine(("M", distributed_map(("C", choice), wait, ("F", {"Type": "Fail"})))).execute([0, 1])
    assert [child.status for child in broken.map_runs[0].executions] == ["ABORTED", "FAILED"]
    one_by_one = distributed_map(wait, MaxConcurrency=1, ToleratedFailurePercentage=100)
    late = machine(("M", one_by_one), TimeoutSeconds=10).execute([0, 1])
    assert late.status == "TIMED_OUT"
    assert [child.status for child in late.map_runs[0].executions] == ["ABORTED"]
    assert late.map_runs[0].status == "ABORTED"


def test_child_executions_begin_a_few_at_a_time_and_are_stopped_once() -> None:
    """At most BATCH_SIZE begin per pass, and each is stopped at most once, so the event loop does not stall."""

    async def main() -> tuple[list[int], cProfile.Profile]:
        begun, profile = [0], cProfile.Profile()
        states = distributed_map(*ODD[:1], ("P", {"Type": "Wait", "Seconds": 100}), ODD[2])
        execution = machine(("M", states)).start([0] * 199 + [1], clock=RealClock(), perform=Bucket().perform)
        while execution.status == "RUNNING":
            profile.enable()
            await asyncio.sleep(0)
            profile.disable()
            begun.append(sum(len(run.executions) for run in execution.map_runs))
        return begun, profile

    begun, profile = asyncio.run(main())
    assert begun[-1] == 200
    assert max(after - before for before, after in pairwise(begun)) == BATCH_SIZE
    assert sum(one.callcount for one in profile.getstats() if one.code is Execution.stop.__code__) <= 201


def test_a_failing_parallel_branch_aborts_a_map_run() -> None:
    """If another branch of a Parallel fails, the history has MapRunAborted."""
    slow = line(("M", distributed_map(("W", {"Type": "Wait", "Seconds": 100}))))
    fast = line(("V", {"Type": "Wait", "Seconds": 1, "Next": "F"}), ("F", {"Type": "Fail"}))
    execution = machine(("P", {"Type": "Parallel", "Branches": [slow, fast]})).execute([1])
    assert event_types(execution)[-4:] == ["MapStateAborted", "MapRunAborted", "ParallelStateFailed", "ExecutionFailed"]


@pytest.mark.parametrize(
    ("batcher", "batches"),
    [
        ({"MaxItemsPerBatch": 2}, [[1, 2], [3, 4], [5]]),
        ({"MaxInputBytesPerBatch": 16}, [[1, 2], [3, 4], [5]]),
        ({"MaxInputBytesPerBatch": 17}, [[1, 2, 3], [4, 5]]),
        ({"MaxInputBytesPerBatch": 1}, [[1], [2], [3], [4], [5]]),
        ({"MaxItemsPerBatch": 9, "BatchInput": {"first.$": "$[0]"}}, [[1, 2, 3, 4, 5]]),
    ],
)
def test_items_are_batched(batcher: dict[str, Any], batches: list[list[int]]) -> None:
    """A batch has a bound of items or bytes; an item larger than that is alone. BatchInput is a template."""
    execution = machine(("M", distributed_map(ItemBatcher=batcher))).execute([1, 2, 3, 4, 5])
    own = {"BatchInput": {"first": 1}} if "BatchInput" in batcher else {}
    assert execution.output == [{"Items": batch, **own} for batch in batches]


@pytest.mark.parametrize(
    ("text", "config", "items"),
    [
        ("[1, null]", {"InputType": "JSON"}, [1, None]),
        ('{"a":"\u2028"}\r\n\n[2]\n', {"InputType": "JSONL"}, [{"a": "\u2028"}, [2]]),
        ("A,B\n1,2\n3\n4,5,6\n", {"InputType": "CSV", "CSVHeaderLocation": "FIRST_ROW"},
         [{"A": "1", "B": "2"}, {"A": "3", "B": ""}, {"A": "4", "B": "5"}]),
        ("1|2\n", {"InputType": "CSV", "CSVHeaderLocation": "GIVEN", "CSVHeaders": ["A"], "CSVDelimiter": "PIPE"},
         [{"A": "1"}]),
        (
            'A,B\nC:\\\\tmp\\\\,x\\,\\y\n"say \\"hi""",\\\n3,\\',
            {"InputType": "CSV", "CSVHeaderLocation": "FIRST_ROW"},
            [{"A": "C:\\tmp\\", "B": "x,y"}, {"A": 'say "hi"', "B": ""}, {"A": "3", "B": ""}],
        ),
        ("A\n" + "x" * 200_000, {"InputType": "CSV", "CSVHeaderLocation": "FIRST_ROW"}, [{"A": "x" * 200_000}]),
    ],
)  # fmt: skip
def test_items_are_read_from_an_object(text: str, config: dict[str, Any], items: list[Any]) -> None:
    """Items are read from JSON, JSON lines and CSV. MapStateStarted has length 0, because they are read after it."""
    execution = run_with_object(text, **config)
    assert execution.output == items
    assert execution.history[2]["mapStateStartedEventDetails"] == {"length": 0}
    assert run_with_object(text, most=1, **config).output == items[:1]
    if config.get("CSVHeaderLocation") == "FIRST_ROW":
        assert run_with_object("A,A\n", **config).cause == "CSV headers cannot contain duplicates."


@pytest.mark.parametrize(
    ("resource", "arguments", "answer", "cause"),
    [
        ("getObject", "{% 5 %}", "[1]", "The field 'Bucket' is required but was missing"),
        ("getObject", {"Bucket": "b"}, "[1]", "The field 'Key' is required but was missing"),
        ("listObjectsV2", {"Bucket": 1}, {}, "The field 'Bucket' is required but was missing"),
        ("listObjectsV2", {"Bucket": "b"}, {"Contents": ["k"]},
         "The answer of listObjectsV2 must have Contents, an array of objects with a Key."),
        ("listObjectsV2", {"Bucket": "b"}, {"Contents": [{"Key": "k"}], "NextContinuationToken": "t"},
         "listObjectsV2 answered with the NextContinuationToken that it was asked with."),
        ("getObject", {"Bucket": "b", "Key": "k"}, {"rows": [1]}, "Attempting to map over non-iterable node."),
        ("getObject", {"Bucket": "b", "Key": "k"}, {"Body": "[1"}, "The object is not JSON."),
    ],
)  # fmt: skip
def test_items_that_cannot_be_read_fail_the_map_run(resource: str, arguments: Any, answer: Any, cause: str) -> None:
    """Arguments without an address and impossible listings are States.ItemReaderFailed; they neither raise nor loop."""
    config = {} if resource == "listObjectsV2" else {"ReaderConfig": {"InputType": "JSON"}}
    reader = {"Resource": f"arn:aws:states:::s3:{resource}", "Arguments": arguments, **config}
    failed = machine(("M", {**distributed_map(ItemReader=reader), "QueryLanguage": "JSONata"})).execute(
        functions={f"aws-sdk:s3:{resource}": answer}
    )
    assert (failed.error, failed.cause) == ("States.ItemReaderFailed", cause)
    assert event_types(failed)[-3:] == ["MapRunFailed", "MapStateFailed", "ExecutionFailed"]


def run_with_reader(config: dict[str, Any], action: str = "s3:getObject", /, **objects: str | bytes) -> Any:
    """Return each item of the bucket with its source, or the execution's cause if it failed."""
    reader = reader_of({"Key": "k"} if action == "s3:getObject" else {}, action, **config)
    shown = {"from.$": "$$.Map.Item.Source", "item.$": "$$.Map.Item.Value"}
    execution = machine(("M", distributed_map(ItemReader=reader, ItemSelector=shown))).execute(
        perform=Bucket(**objects).perform
    )
    return execution.cause if execution.error else [(one["from"], one["item"]) for one in execution.output]


def test_items_below_a_pointer_are_read() -> None:
    """ItemsPointer (RFC 6901) names the array of items within an object. A value that is no array fails the Map Run."""
    text = '{"a/b": {"c": [1, 2]}}'
    config = {"InputType": "JSON", "ItemsPointer": "/a~1b/c"}
    assert run_with_reader(config, k=text) == [("s3://b/k", 1), ("s3://b/k", 2)]
    for pointer in ("/a~1b", "/nothing/c", "/a~1b/c/0"):
        assert (
            run_with_reader({**config, "ItemsPointer": pointer}, k=text) == "Attempting to map over non-iterable node."
        )
    reader = reader_of({"Key": "k"}, **config)
    read = machine(("M", distributed_map(ItemReader=reader))).execute(
        functions={"aws-sdk:s3:getObject": json.loads(text)}
    )
    assert read.output == [1, 2]  # data in place of S3's answer


def test_listed_objects_are_loaded_one_after_the_other() -> None:
    """LOAD_AND_FLATTEN reads each object's items. MaxItems counts them all, and later objects are not requested."""
    config = {"InputType": "JSONL", "Transformation": "LOAD_AND_FLATTEN"}
    listed = "s3:listObjectsV2"
    items = [("s3://b/a", 1), ("s3://b/a", 2), ("s3://b/z", 3)]
    assert run_with_reader(config, listed, a="1\n2", z="3") == items
    assert run_with_reader({**config, "MaxItems": 2}, listed, a="1\n2", z="{") == items[:2]
    assert run_with_reader(config, listed, a="1\n2", z="{") == "The object is not JSONL."
    assert run_with_reader({"Transformation": "NONE"}, listed, a="1")[0][0] == "s3://b"


def test_a_manifest_of_s3_inventory_is_read() -> None:
    """The manifest's columns name the fields of its files' rows. It names their bucket, and they may be gzip."""
    manifest = {"destinationBucket": "arn:aws:s3:::lake", "fileFormat": "CSV", "fileSchema": "Bucket, Key, Size"}
    text = json.dumps({**manifest, "files": [{"key": "one"}, {"key": "two"}]})
    files: dict[str, Any] = {"one": gzip.compress(b'"b","x.json","3"\n'), "two": b'"b","y, z","4"\n'}
    items = [
        ("s3://lake/one", {"Bucket": "b", "Key": "x.json", "Size": "3"}),
        ("s3://lake/two", {"Bucket": "b", "Key": "y, z", "Size": "4"}),
    ]
    for config in ({"InputType": "MANIFEST"}, {"ManifestType": "S3_INVENTORY"}):
        assert run_with_reader(config, k=text, **files) == items
    assert run_with_reader({"InputType": "MANIFEST", "MaxItems": 1}, k=text, one=files["one"]) == items[:1]
    orc = text.replace("CSV", "ORC")
    assert run_with_reader(config, k=orc) == "An inventory of the format ORC cannot be read; CSV can."
    assert run_with_reader(config, k="[]") == "The object is not a manifest of S3 Inventory."
    assert run_with_reader(config, k=b"\x1f\x8b") == "The object begins like gzip, but it cannot be unpacked."


def test_a_manifest_of_athena_is_read() -> None:
    """Athena's manifest lists objects by address; InputType names their format."""
    config = {"InputType": "JSONL", "ManifestType": "ATHENA_DATA"}
    assert run_with_reader(config, k="s3://b/one\ns3://b/two\n", one="1\n", two=gzip.compress(b"2\n")) == [
        ("s3://b/one", 1),
        ("s3://b/two", 2),
    ]
    assert run_with_reader(config, k="one\n") == "The object is not a manifest of Athena."


def test_rows_of_parquet_are_read() -> None:
    """Rows of Parquet become objects. JSON cannot hold an instant, a decimal, bytes or NaN, so these become texts."""
    table = pyarrow.table(
        {"n": [float("nan"), None], "at": [datetime(2026, 1, 2, tzinfo=UTC)] * 2, "d": [Decimal("1.50")] * 2}
    )
    written = pyarrow.BufferOutputStream()
    parquet.write_table(table, written)
    row = {"at": "2026-01-02T00:00:00+00:00", "d": "1.50"}
    config = {"InputType": "PARQUET"}
    body = written.getvalue().to_pybytes()
    assert run_with_reader(config, k=body) == [("s3://b/k", {"n": "NaN", **row}), ("s3://b/k", {"n": None, **row})]
    for broken in (b"PAR1", body.replace(b"decimal", b"decimax")[:-9] + body[-8:], b"PAR1" * 9):
        assert run_with_reader(config, k=broken) == "The object is not PARQUET."


def test_the_entries_of_a_listed_bucket_are_items() -> None:
    """Each object's entry is an item, page after page. Times are seconds and the tag is named Etag."""
    reader = reader_of({}, "s3:listObjectsV2")
    execution = machine(("M", distributed_map(ItemReader=reader))).execute(perform=Bucket(a="x", b="y").perform)
    assert execution.output == [
        {"Etag": "e", "Key": name, "LastModified": 1_767_225_600, "Size": size} for name, size in (("a", 0), ("b", 1))
    ]


def test_results_are_written_to_a_bucket() -> None:
    """ResultWriter writes successes, failures and a manifest that names both. The output is the manifest's address."""
    bucket = Bucket()
    writer = {"Resource": PUT, "Parameters": {"Bucket": "b", "Prefix": "out"}}
    state = distributed_map(*ODD, ResultWriter=writer, Label="Odd", ToleratedFailureCount=1)
    execution = machine(("M", state)).execute([0, 1], perform=bucket.perform)
    run = execution.map_runs[0]
    folder = f"out/{run.name}"
    assert execution.output == {
        "MapRunArn": f"arn:aws:states:us-east-1:111111111111:mapRun:machine/Odd:{run.name}",
        "ResultWriterDetails": {"Bucket": "b", "Key": f"{folder}/manifest.json"},
    }
    manifest = json.loads(bucket.objects[f"{folder}/manifest.json"])
    assert manifest["DestinationBucket"] == "b"
    assert [file["Key"] for file in manifest["ResultFiles"]["SUCCEEDED"]] == [f"{folder}/SUCCEEDED_0.json"]
    assert manifest["ResultFiles"]["SUCCEEDED"][0]["Size"] == len(bucket.objects[f"{folder}/SUCCEEDED_0.json"])
    (well,) = json.loads(bucket.objects[f"{folder}/SUCCEEDED_0.json"])
    (badly,) = json.loads(bucket.objects[f"{folder}/FAILED_0.json"])
    assert (well["Input"], well["Output"], badly["Error"]) == ("0", "0", "Odd")


@pytest.mark.parametrize(
    ("config", "output"),
    [
        ({"Transformation": "COMPACT"}, [[0, 0], [2, 2]]),
        ({"Transformation": "FLATTEN"}, [0, 0, 2, 2]),
        ({"Transformation": "FLATTEN", "OutputType": "JSONL"}, "0\n0\n2\n2"),
    ],
)
def test_results_are_compacted_or_flattened(config: dict[str, str], output: Any) -> None:
    """WriterConfig compacts or flattens the results, in the state's output or in a bucket."""
    twice = ("A", {"Type": "Pass", "Parameters": {"v.$": "States.Array($, $)"}, "OutputPath": "$.v"})
    assert (
        machine(("M", distributed_map(twice, ResultWriter={"WriterConfig": config}))).execute([0, 2]).output == output
    )
    bucket = Bucket()
    writer = {"Resource": PUT, "Parameters": {"Bucket": "b"}, "WriterConfig": config}
    machine(("M", distributed_map(twice, ResultWriter=writer))).execute([0, 2], perform=bucket.perform)
    ((name, text),) = [(key, text) for key, text in bucket.objects.items() if "SUCCEEDED" in key]
    lines = config.get("OutputType") == "JSONL"
    assert (name.endswith(".jsonl"), text if lines else json.loads(text)) == (lines, output)


def test_a_result_of_form_none_or_a_failed_one_describes_its_execution() -> None:
    """NONE describes each execution in full. COMPACT does so only for a failed one."""
    for form, name in (("NONE", "Name"), ("COMPACT", None)):
        state = distributed_map(*ODD, ResultWriter={"WriterConfig": {"Transformation": form}}, ToleratedFailureCount=1)
        well, badly = machine(("M", state)).execute([0, 1]).output
        assert (well if name is None else well["Output"], badly["Status"], badly["Error"]) == (
            0 if name is None else "0", "FAILED", "Odd",
        )  # fmt: skip


def test_an_item_selector_that_cannot_be_evaluated_fails_the_map_run() -> None:
    """A path that leads nowhere is States.Runtime; a failed JSONata selector can be caught. The Map Run has failed."""
    pathed = machine(("M", distributed_map(ItemSelector={"v.$": "$.none"}))).execute([1])
    assert (pathed.error, pathed.map_runs[0].status) == ("States.Runtime", "FAILED")
    catch = [{"ErrorEquals": ["States.ALL"], "Next": "Z"}]
    state = distributed_map(ItemSelector={"v": "{% $states.input.none %}"}, Catch=catch)
    queried = machine(("M", state), ("Z", PASS), QueryLanguage="JSONata").execute([1])
    assert queried.output["Error"] == "States.QueryEvaluationError"
    assert event_types(queried)[4:7] == ["EvaluationFailed", "MapRunFailed", "MapStateFailed"]


SHARE = {"ItemsPath": "$.l", "ToleratedFailurePercentagePath": "$.n"}
MOST = {"ItemReader": reader_of({"Key": "k"}, InputType="JSON", MaxItemsPath="$.n")}


@pytest.mark.parametrize(
    ("fields", "number", "error", "cause"),
    [
        (MOST, -1, "States.ItemReaderFailed", "field MaxItems must be positive"),
        (MOST, "x", "States.Runtime", 'The MaxItemsPath field refers to value "x" which is not a valid integer: $.n'),
        (SHARE, -1, "States.Runtime", "ToleratedFailurePercentage must be between 0 and 100."),
        (SHARE, 100.1, "States.Runtime", "ToleratedFailurePercentage must be between 0 and 100."),
        (SHARE, {}, "States.Runtime",
         'The ToleratedFailurePercentagePath field refers to value "{}" which is not a valid float: $.n'),
    ],
)  # fmt: skip
def test_a_wrong_number_from_a_path_fails_the_map(fields: dict[str, Any], number: Any, error: str, cause: str) -> None:
    """A negative MaxItems fails the item reader; any other wrong number fails the execution before the Map Run."""
    data = {"l": [1], "n": number}
    execution = machine(("M", distributed_map(**fields))).execute(data, perform=Bucket(k="[1]").perform)
    assert (execution.error, (execution.cause or "").endswith(cause)) == (error, True)
    assert ("MapRunStarted" in event_types(execution)) is (error == "States.ItemReaderFailed")


def test_a_redriven_map_run_reads_and_writes_again() -> None:
    """A redrive of the Map Run reads items and writes results that could not be read or written before."""
    reader, writer = reader_of({"Key": "k"}, InputType="JSON"), {"Resource": PUT, "Parameters": {"Bucket": "b"}}
    bucket, full = Bucket(), True

    async def perform(call: TaskCall) -> Any:
        if full and call.action == "putObject":
            raise TaskFailure("S3.AccessDenied", "Access Denied")
        return await bucket.perform(call)

    unread = machine(("M", distributed_map(ItemReader=reader, ResultWriter=writer)))
    first = unread.execute(perform=perform)
    assert first.error == "States.ItemReaderFailed"
    bucket.objects["k"] = "[1, 2]"
    second = redrive(unread, first, 1, perform)
    assert (second.error, second.map_runs[0].redrives) == ("States.ResultWriterFailed", 1)
    full = False
    third = redrive(unread, second, 2, perform)
    assert (third.status, third.map_runs[0].arn) == ("SUCCEEDED", first.map_runs[0].arn)
    assert [one.redrives for one in third.map_runs[0].executions] == [0, 0]


def test_a_redrive_after_states_runtime_starts_a_new_map_run() -> None:
    """States.Runtime leaves no Map Run to redrive. A Map Run redriven a thousand times fails with States.Runtime."""
    broken = machine(("M", distributed_map(ItemSelector={"x.$": "$.missing"})))
    first = broken.execute([1])
    again = redrive(broken, first, 1)
    assert first.error == again.error == "States.Runtime"
    assert [run.redrives for run in again.map_runs] == [0]
    failing = machine(("M", distributed_map(("F", {"Type": "Fail", "Error": "Always"}))))
    last = failing.execute([1])
    last.part["place"]["within"]["run"]["redrives"] = 999
    assert redrive(failing, last, 1).error == "States.ExceedToleratedFailureThreshold"
    last.part["place"]["within"]["run"]["redrives"] = 1000
    assert redrive(failing, last, 1).error == "States.Runtime"


def test_a_child_execution_with_a_full_history_or_too_old_is_not_redriven() -> None:
    """A child execution whose history is full, or that ended more than 14 days ago, counts as failed."""
    failing = machine(("M", distributed_map(("F", {"Type": "Fail", "Error": "Always"}), ToleratedFailureCount=1)))
    last = failing.execute([1, 2, 3])
    full, old, other = last.part["place"]["within"]["run"]["executions"]
    full["events"], old["stopped_ms"], other["events"] = 24_999, 0, 24_998
    again = redrive(failing, last, 1)
    assert [one.redrives for one in again.map_runs[0].executions] == [0, 0, 0]
    old["stopped_ms"] = full["stopped_ms"]
    again = redrive(failing, last, 1)
    assert [one.redrives for one in again.map_runs[0].executions] == [0, 1, 1]


def redrive(failed: Machine, last: Execution, count: int, perform: Any = None) -> Execution:
    """Return the execution that redrives `last`, whose redrive count becomes `count`."""
    before = Redriven(json.loads(json.dumps(last.part)), count, last.started_ms, last.event_count)
    again: Execution = failed.execute(last.input, perform=perform, redriven=before)
    return again


ITEM = {"k.$": "$$.Map.Item.Key", "v.$": "$$.Map.Item.Value", "i.$": "$$.Map.Item.Index", "s.$": "$$.Map.Item.Source"}
GIVEN = [{"k": "a", "v": 1, "i": 0, "s": "STATE_DATA"}, {"k": "b", "v": [2], "i": 1, "s": "STATE_DATA"}]


@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({"ItemsPath": "$.o"}, [{"Key": "a", "Value": 1}, {"Key": "b", "Value": [2]}]),
        ({"ItemsPath": "$.o", "ItemSelector": ITEM}, GIVEN),
        ({"QueryLanguage": "JSONata", "Items": "{% $states.input.o %}", "ItemBatcher": {"MaxItemsPerBatch": 2}},
         [{"Items": [{"Key": "a", "Value": 1}, {"Key": "b", "Value": [2]}]}]),
        ({"QueryLanguage": "JSONata", "Items": {"x": None}}, [{"Key": "x", "Value": None}]),
        ({"QueryLanguage": "JSONata", "Items": {}}, []),
    ],
)  # fmt: skip
def test_the_members_of_an_object_are_items(fields: dict[str, Any], output: Any) -> None:
    """An object's members are items with Key and Value, in the object's order. Their source is STATE_DATA."""
    assert machine(("M", distributed_map(**fields))).execute({"o": {"a": 1, "b": [2]}}).output == output
