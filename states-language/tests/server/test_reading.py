"""Definitions are read once each, off the event loop; histories are kept as texts."""

import asyncio
import gc
import importlib
import json
import pkgutil
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import states_language
from endpoint import PASS, PREFIX, ROLE, WAIT, distributed_map, line_of, stepfunctions
from states_language.definition import load as loading
from states_language.scheduling.lanes import worker_thread
from states_language.server.actions import StepFunctions
from states_language.server.definition_reader import LARGE, BoundedCache, DefinitionReader
from states_language.server.diagnostics import MOST_READ, diagnostics, examine
from states_language.server.known_executions import KnownExecution
from states_language.server.stored_events import StoredEvents


def failing(comment: str) -> str:
    """Return a definition of a machine that fails, with a comment of its own."""
    return json.dumps({"StartAt": "A", "Comment": comment, "States": {"A": {"Type": "Fail"}}})


def test_only_a_reading_thread_yields_pythons_lock() -> None:
    """A reading thread that loses its core while it holds Python's lock would stop the event loop too, so it pauses."""

    async def rests() -> list[bool]:
        reader = DefinitionReader()
        found = [
            await reader.run_in_thread(length, lambda: worker_thread.give_way is not None) for length in (1, LARGE + 1)
        ]
        reader.close()
        return found

    assert asyncio.run(rests()) == [True, True]
    assert worker_thread.give_way is None


def test_a_definition_is_read_once_with_a_pause_after_every_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copying a megabyte or walking all its states at once would hold Python's lock for many milliseconds."""
    states = {f"S{number}": {"Type": "Pass", "Next": f"S{number + 1}"} for number in range(2_000)}
    text = json.dumps({"StartAt": "S0", "States": {**states, "S2000": {"Type": "Succeed"}}})
    since, most, texts = 0, 0, 0

    def give_way() -> None:
        nonlocal since
        since = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal since, most, texts
        since += event in ("call", "c_call")
        most, texts = max(most, since), texts + (event == "call" and frame.f_code is json.loads.__code__)

    monkeypatch.setattr(worker_thread, "give_way", give_way)
    sys.setprofile(count)
    try:
        examine(text)
    finally:
        sys.setprofile(None)
    assert (texts, most < 1_000) == (1, True)


def test_a_request_after_the_end_is_refused(tmp_path: Path) -> None:
    """A request after the service's end gets 400, as any other refusal."""

    async def late() -> Any:
        async with stepfunctions(tmp_path) as api:
            api.close()
            return await api.answer("TestState", json.dumps({"definition": failing("late")}).encode())

    answer = asyncio.run(late())
    assert (answer.status_code, "The service is ending." in str(answer.body)) == (400, True)


def test_no_definition_is_read_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Creating, updating, starting a version or alias, redriving and TestState read no definition on the event loop."""
    monkeypatch.setattr("states_language.server.diagnostics._examinations", BoundedCache(1))
    here = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is loading._load_line.__code__:
            here.append(frame.f_back)

    async def use(api: StepFunctions) -> None:
        new = {"name": "m", "roleArn": ROLE, "publish": True}
        arn = (await api.call("CreateStateMachine", new | {"definition": failing("one")}))["stateMachineArn"]
        alias = {"name": "live", "routingConfiguration": [{"stateMachineVersionArn": f"{arn}:1", "weight": 100}]}
        await api.call("CreateStateMachineAlias", alias)
        await api.call("UpdateStateMachine", {"stateMachineArn": arn, "definition": failing("two")})
        for started in (f"{arn}:1", f"{arn}:live", arn):
            execution = (await api.call("StartExecution", {"stateMachineArn": started}))["executionArn"]
            while api.executions.running():
                await asyncio.sleep(0.01)
            # Only the last text that was read is remembered here.
            await api.call("ValidateStateMachineDefinition", {"definition": failing("three")})
            await api.call("RedriveExecution", {"executionArn": execution})
        await api.call("DescribeStateMachine", {"stateMachineArn": f"{arn}:1"})
        state = {"Type": "Map", "ItemProcessor": json.loads(failing("four")), "End": True}
        mock = {"result": "[1]"}
        await api.call("TestState", {"definition": json.dumps(state), "roleArn": ROLE, "mock": mock})

    async def main() -> None:
        sys.setprofile(look)
        try:
            async with stepfunctions(tmp_path) as api:
                await use(api)
        finally:
            sys.setprofile(None)

    asyncio.run(main())
    assert here == []


def test_the_history_of_a_running_execution_is_few_objects(tmp_path: Path) -> None:
    """A thousand events are few objects for the garbage collector, and each reads as it was written."""
    wait = {"Type": "Wait", "Seconds": 0, "Next": "B"}
    more = {"Type": "Choice", "Choices": [{"Variable": "$", "IsNull": True, "Next": "C"}], "Default": "A"}
    loop = {"StartAt": "A", "States": {"A": wait, "B": more, "C": {"Type": "Succeed"}}}

    async def main() -> None:
        async with stepfunctions(tmp_path, ("m", loop)) as api:
            executions = api.executions
            gc.collect()
            before = len(gc.get_objects())
            known = executions.start(PREFIX + "m")
            while len(executions.history(known)) < 1_000:
                await asyncio.sleep(0)
            gc.collect()
            assert len(gc.get_objects()) - before < 500
            executions.stop(known.opening.arn, None, None)
            history = executions.history(known)
            assert [event["id"] for event in history] == list(range(1, len(history) + 1))

    asyncio.run(main())


@pytest.mark.parametrize(
    "state",
    [
        {"Type": "Parallel", "Branches": [line_of(W=WAIT["States"]["S"]), line_of(F={"Type": "Fail"})], "End": True},
        {**distributed_map(W=WAIT["States"]["S"]), "ItemsPath": "$"},
        {**distributed_map(P=PASS["States"]["S"]), "ItemsPath": "$"},
        {"Type": "Pass", "QueryLanguage": "JSONata", "Output": "{% $sum('') %}", "End": True},
    ],
)
def test_an_ended_execution_leaves_nothing_to_the_collector(tmp_path: Path, state: dict[str, Any]) -> None:
    """An ended execution leaves no cycles. Freeing them once took 100 ms, in which no request was answered."""

    async def main() -> list[int]:
        async with stepfunctions(tmp_path, ("m", line_of(M=state))) as api:

            async def run() -> None:
                arn = api.executions.start(PREFIX + "m", "[1, 2, 3]").opening.arn
                for _ in range(100):
                    await asyncio.sleep(0)
                api.executions.stop(arn, None, None)
                await asyncio.sleep(0.01)

            await asyncio.create_task(run())
            gc.collect()
            gc.disable()
            await asyncio.create_task(run())
            return [gc.collect(), len(api.executions.running())]

    try:
        assert asyncio.run(main()) == [0, 0]
    finally:
        gc.enable()


def test_a_thread_writes_the_place_of_a_large_map_run_and_one_redrive_reads_it(tmp_path: Path) -> None:
    """The event loop does not wait for the write. Of two redrives one succeeds, with the executions' inputs."""
    selector = {"text.$": "$$.Execution.Input.text", "at.$": "$$.Map.Item.Value"}
    definition = line_of(M={**distributed_map(W=WAIT["States"]["S"]), "ItemsPath": "$.items", "ItemSelector": selector})
    request = {"stateMachineArn": PREFIX + "m", "input": json.dumps({"text": "é" * 2_000, "items": list(range(100))})}

    async def running(known: KnownExecution) -> list[str]:
        inputs: list[str] = []
        while len(inputs) < 100 and known.live is not None:
            await asyncio.sleep(0)
            children = [one for run in known.live.map_runs for one in run.executions]
            inputs = [one.input_text for one in children if one.status == "RUNNING"]
        return inputs

    async def main() -> None:
        async with stepfunctions(tmp_path, ("m", definition)) as api:
            arn = (await api.call("StartExecution", request))["executionArn"]
            known = api.executions.get(arn)
            inputs = await running(known)
            api.executions.stop(arn, None, None)
            assert b'{"part":' not in known.path.read_bytes()
            while known.live is not None:
                await asyncio.sleep(0)
            both = (api.call("RedriveExecution", {"executionArn": arn}) for _ in range(2))
            answers = await asyncio.gather(*both, return_exceptions=True)
            refused = [str(one) for one in answers if not isinstance(one, dict)]
            assert refused == ["Execution is RUNNING and cannot be redriven."]
            assert await running(known) == inputs

    asyncio.run(main())


def test_a_running_history_reads_like_a_stored_one(tmp_path: Path) -> None:
    """The history in memory equals the stored one: whole, by slices, and from the end."""

    async def main() -> None:
        async with stepfunctions(tmp_path, ("m", WAIT)) as api:
            request = {"stateMachineArn": PREFIX + "m", "input": '{"text": "\\ud83d\\ude00 \\u20ac"}'}
            known = api.executions.get((await api.call("StartExecution", request))["executionArn"])
            await asyncio.sleep(0.05)
            running = api.executions.history(known)
            stored = StoredEvents(known.path)
            assert (list(running), running[-1], running[1:]) == (list(stored), stored[-1], stored[1:])
            assert running[1]["stateEnteredEventDetails"]["input"] == '{"text":"😀 €"}'

    asyncio.run(main())


def test_a_very_large_definition_lists_only_its_first_problems() -> None:
    """Each problem needs another reading of the whole text, so their number is bounded."""
    states = {f"S{number}": {"Type": "Pass", "No": 1, "Next": f"S{number + 1}"} for number in range(100)}
    definition = {"StartAt": "S0", "States": {**states, "S100": {"Type": "Succeed", "Comment": "x" * 900_000}}}
    text = json.dumps(definition)
    assert len(diagnostics(text, "STANDARD")) == MOST_READ // len(text) == 4
    small = json.dumps({**definition, "States": {**states, "S100": {"Type": "Succeed"}}})
    assert len(diagnostics(small, "STANDARD")) == 100
    assert examine(small) is examine(small)


def test_remembered_keeps_texts_up_to_a_total_length() -> None:
    """Recently used texts stay longest. The newest text is kept whatever its length."""
    kept: BoundedCache[int] = BoundedCache(10)
    kept.put("a" * 4, 1)
    kept.put("b" * 4, 2)
    assert kept.get("a" * 4) == 1
    kept.put("c" * 4, 3)
    assert [kept.get(letter * 4) for letter in "abc"] == [1, None, 3]
    kept.put("d" * 40, 4)
    assert [kept.get("a" * 4), kept.get("c" * 4), kept.get("d" * 40)] == [None, None, 4]


def test_no_cache_grows_for_ever() -> None:
    """Caches without a bound hold only what the package itself names, nothing of a definition or a request."""
    unbounded = set()
    for found in pkgutil.walk_packages(states_language.__path__, "states_language."):
        for cache in vars(importlib.import_module(found.name)).values():
            if hasattr(cache, "cache_info") and cache.cache_parameters()["maxsize"] is None:
                unbounded.add(cache.__wrapped__.__name__)
    assert unbounded == {"_functions_frame", "_details_key", "_services", "Signature", "_shared_frame", "api_model"}
