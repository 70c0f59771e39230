"""Executions take turns on the event loop, and another process evaluates costly expressions."""

import asyncio
import gc
import os
import re
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from language.jsonata_expressions import EXPRESSIONS, INPUT
from machines import distributed_map, line, machine
from patience import until
from states_language import DefinitionError, Execution, RealClock, TaskCall, load
from states_language.jsonata.bounds import SHARED_LIMITS
from states_language.jsonata.evaluation import compile_query
from states_language.scheduling.evaluator import answer_job
from states_language.scheduling.lanes import BATCH_SIZE, STATE_ENTRY_STEPS, STEPS_PER_TURN, Lanes
from states_language.scheduling.pool import Pool
from states_language.scheduling.writing import text_in_turns
from states_language.values import compact

TOO_LONG = "Expression evaluation timeout: Check for infinite loop"
CODED = "error during evaluation. [STD][0-9]{4}: "
BOUND = "error during evaluation: (Stack overflow|Expression evaluation)"
NOTHING = r"returned (nothing \(undefined\)|an unsupported result type)\."
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner, max_size=8),
)
ENDLESS = "($f := function($n) { $f($n + 1) }; $f(0))"


class CountingLanes(Lanes):
    """Lanes that record how many steps were taken between two renewals of a turn."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.taken = [0]

    def spend(self, steps: int, lane: Any = None) -> None:
        """Count the steps, then spend them."""
        self.taken[-1] += steps
        super().spend(steps, lane)

    def _renew(self) -> None:
        self.taken.append(0)
        super()._renew()


async def _nothing(_: TaskCall) -> Any:
    return None


def run_all(
    states: list[dict[str, Any]], data: Any, look: Callable[[CountingLanes], object] = lambda _: None
) -> list[Execution]:
    """Run each state as a machine of its own, all at once in lanes of one event loop, and return the executions."""

    async def main() -> list[Execution]:
        pool = Pool(2)
        lanes = CountingLanes(pool)
        try:
            begun = [
                load(line(("A", state))).start(data, clock=RealClock(), perform=_nothing, lanes=lanes)
                for state in states
            ]
            return [await execution.wait() for execution in begun]
        finally:
            pool.close()
            look(lanes)
            await pool.wait_closed()

    return asyncio.run(main())


def query(expression: str) -> dict[str, Any]:
    """Return a state that evaluates an expression."""
    return {"Type": "Pass", "QueryLanguage": "JSONata", "Output": f"{{% {expression} %}}"}


@pytest.mark.long
def test_an_endless_evaluation_takes_at_most_one_turn_at_a_time() -> None:
    """An endless recursion and a backtracking regular expression take at most a turn at a time, so others go on."""
    seen: list[int] = []
    attacks = [query(ENDLESS), query(f"$match('{'a' * 40}b', /^(a|aa)+$/)"), *[query("1 + 1")] * 50]
    endless, backtracked, *small = run_all(attacks, {}, lambda lanes: seen.extend(lanes.taken))
    assert TOO_LONG in str(endless.cause)
    assert (endless.error, backtracked.error) == ("States.QueryEvaluationError", "States.QueryEvaluationError")
    assert [each.output for each in small] == [2] * 50
    assert max(seen) <= STEPS_PER_TURN + STATE_ENTRY_STEPS + 2 * SHARED_LIMITS.steps


def test_no_pass_of_the_event_loop_takes_more_than_a_turn() -> None:
    """With a giant range, 500 expressions and a deep scan, a pass takes at most a turn and one step more."""
    attacks = [
        query("$count([1..200000])"),
        {"Type": "Pass", "QueryLanguage": "JSONata", "Output": ["{% $sum([1..100]) %}"] * 500},
        {"Type": "Pass", "Parameters": {"v.$": "$..*[?(@..b)]"}},
        *[query("1 + 1")] * 50,
    ]
    seen: list[int] = []
    executions = run_all(attacks, {"a": [{"b": n} for n in range(800)]}, lambda lanes: seen.extend(lanes.taken))
    counted, many, scanned, *small = executions
    assert (counted.output, len(many.output), scanned.status) == (200_000, 500, "SUCCEEDED")
    assert [each.output for each in small] == [2] * 50
    # The step beyond the limit counts too. The other parts of an evaluation are charged once they are known.
    assert max(seen) <= STEPS_PER_TURN + STATE_ENTRY_STEPS + 2 * SHARED_LIMITS.steps


def test_each_item_of_a_map_run_counts_before_it_begins_and_when_it_is_written() -> None:
    """Each item costs a step before it begins and one when its result is written, so others have turns in between."""
    seen: list[int] = []
    state = distributed_map(("B", {"Type": "Pass"}), ResultWriter={"WriterConfig": {"Transformation": "COMPACT"}})
    (execution,) = run_all([state], list(range(200)), lambda lanes: seen.extend(lanes.taken))
    assert (len(execution.output), sum(seen)) == (200, STATE_ENTRY_STEPS + 200 * (1 + STATE_ENTRY_STEPS + 1))


def test_a_stopped_map_run_ends_at_once_and_unwinds_a_few_executions_at_a_time() -> None:
    """A stop aborts all executions of a Map Run at once, nested ones too. Each pass of the event loop unwinds only a
    few, and only then is the last event written, unless somebody reads the history before.

    The stopped execution's place names where each of them stood.
    """
    many = distributed_map(("W", {"Type": "Wait", "Seconds": 100}))
    waiting = machine(("M", distributed_map(("N", many), ItemsPath="$.one")))

    async def main() -> tuple[list[int], list[str], Execution]:
        data = {"one": [[0] * 100]}
        execution = waiting.start(data, clock=RealClock(), perform=_nothing, lanes=Lanes(Pool()))
        while sum(one.path == ["W"] for one in below(execution)) < 100:
            await asyncio.sleep(0)
        execution.stop()
        assert [one.event_count - one.record.count for one in below(execution)] == [1] * 101
        statuses = [f"{one.status} {one.history[-1]['type']}" for one in below(execution)]
        left = [len(asyncio.all_tasks())]
        while left[-1] > 1:
            await asyncio.sleep(0)
            left.append(len(asyncio.all_tasks()))
        return left, statuses, execution

    def below(one: Any) -> list[Execution]:
        own = [inner for run in one.map_runs for inner in run.executions]
        return [*own, *(deeper for inner in own for deeper in below(inner))]

    left, statuses, execution = asyncio.run(main())
    assert statuses == ["ABORTED ExecutionAborted"] * 101
    assert left[0] == 103
    assert max(before - after for before, after in pairwise(left)) <= BATCH_SIZE
    (child,) = execution.part["place"]["within"]["run"]["executions"]
    stood = [one["part"]["place"]["state"] for one in child["part"]["place"]["within"]["run"]["executions"]]
    assert (execution.ended.done(), stood) == (True, ["W"] * 100)


def test_works_that_end_executions_take_one_pass_each_and_leave_few_young_objects() -> None:
    """A large work that calls itself again runs once in a pass, and no more often in the later ones.

    Python counts the objects made minus those freed, so without help 20,000 young ones would be left for one
    collection.
    """
    old: list[Any] = [[] for _ in range(20_000)]
    gc.collect(1)
    young: list[Any] = []

    async def main() -> int:
        lanes, passes = Lanes(Pool()), 0

        def end() -> None:
            del old[-400:]
            young.extend([] for _ in range(400))
            if old:
                lanes.call_in_batches(end, BATCH_SIZE)

        lanes.call_in_batches(end, BATCH_SIZE)
        while old:
            await asyncio.sleep(0)
            passes += 1
        return passes

    assert asyncio.run(main()) == 50
    assert len(gc.get_objects(generation=0)) < 8_000


def test_a_task_is_over_once_its_execution_is_stopped() -> None:
    """A Task's Pending refuses an answer from the moment of the stop, though its lane ends some passes later."""
    calls: list[TaskCall] = []

    async def perform(call: TaskCall) -> Any:
        calls.append(call)
        return {}

    task = {"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken", "Parameters": {}}
    waiting = machine(("M", distributed_map(("T", task))))

    async def main() -> list[bool]:
        execution = waiting.start([0] * 3, clock=RealClock(), perform=perform, lanes=Lanes(Pool()))
        while len(calls) < 3:
            await asyncio.sleep(0)
        execution.stop()
        return [call.pending is not None and call.pending.succeed({}) for call in calls]

    assert asyncio.run(main()) == [False] * 3


def test_a_deeply_nested_expression_is_evaluated_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """In lanes a deep recursion needs no thread of its own, which would get its turn late on a busy machine."""
    deep = query("($f := function($n) { $n = 0 ? 0 : 1 + $f($n - 1) }; $f(30))")
    assert load(line(("A", deep))).execute().output == 30
    begun: list[Any] = []

    def on_new_stack(work: Callable[[], Any]) -> Any:
        begun.append(work)
        return work()

    monkeypatch.setattr("states_language.jsonata.engine.on_new_stack", on_new_stack)
    assert ([execution.output for execution in run_all([deep], {})], begun) == ([30], [])


def test_a_costly_side_of_or_is_evaluated_in_another_process() -> None:
    """A costly side of `or` gives its value in lanes, as in virtual time, and does not fail."""
    costly = query("false or $count($map([1..1000], function($v) { $v })) = 1000")
    assert load(line(("A", costly))).execute().output is True
    assert [execution.output for execution in run_all([costly], {})] == [True]


def test_an_intrinsic_function_of_a_large_array_gives_the_same_in_lanes() -> None:
    """In lanes an intrinsic function of a large array has the same value as in virtual time."""
    functions = ["States.ArrayUnique($.a)", "States.JsonToString($.a)", "States.ArrayPartition($.a, 2)"]
    states: list[dict[str, Any]] = [{"Type": "Pass", "Parameters": {"v.$": function}} for function in functions]
    data = {"a": list(range(2_000))}
    here = [load(line(("A", state))).execute(data).output for state in states]
    assert [execution.output for execution in run_all(states, data)] == here


@given(EXPRESSIONS)
def test_an_expression_fails_with_a_code_or_a_bound(expression: str) -> None:
    """Any failure of an expression has JSONata's code or names a bound; it is never an internal error."""
    try:
        compile_query(f"{{% {expression} %}}", "/States/A/Output")
    except DefinitionError:
        return
    job = {"expression": expression, "states": {"input": INPUT}, "variables": {}, "location": "Output"}
    failure = answer_job(job).get("failure", "error during evaluation. D1001: ")
    assert re.search(f"{CODED}|{BOUND}|{NOTHING}", failure), failure


@given(JSON)
def test_a_value_written_in_turns_has_the_same_text(value: Any) -> None:
    """A large value has the same text whether other executions have turns while it is written or not."""

    async def main() -> str:
        async def written() -> str:
            return text_in_turns([value] * 300, 10_000_000)

        return await asyncio.create_task(Lanes(Pool()).run(written()))

    assert asyncio.run(main()) == compact([value] * 300)


def test_the_pool_replaces_a_killed_fork_server_and_leaves_no_process() -> None:
    """After a kill of the fork server, questions are still answered. After `close` neither it nor an evaluator is left.

    Two evaluators of one fork server draw different random numbers.
    """
    job = {"expression": "[$sum([1..9]), $random()]", "states": {}, "variables": {}, "location": "Output"}

    def children(pid: int) -> list[int]:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    async def main() -> tuple[list[Any], list[int]]:
        pool, own = Pool(2), os.getpid()
        before = set(children(own))
        answers = [await pool.evaluate(job)]
        (server,) = set(children(own)) - before
        seen = [server, *children(server)]
        os.kill(server, signal.SIGKILL)
        await asyncio.to_thread(os.waitid, os.P_PID, server, os.WEXITED | os.WNOWAIT)
        answers += await asyncio.gather(pool.evaluate(job), pool.evaluate(job))
        (second,) = set(children(own)) - before - {server}
        seen += [second, *children(second)]
        pool.close()
        await pool.wait_closed()
        return answers, seen

    answers, seen = asyncio.run(main())
    assert [answer["value"][0] for answer in answers] == [45] * 3
    assert answers[1] != answers[2]
    assert until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in seen))


@pytest.mark.parametrize(
    ("state", "count", "most"),
    [
        # A turn to enter the state and one for its expression; beside ten large executions they come within four.
        ({"Type": "Pass", "QueryLanguage": "JSONata", "Output": ["{% $sum([1..100]) %}"] * 500}, 10, 5),
        # Each of the two turns comes after those of four Maps, which run forty iterations at a time.
        ({"Type": "Map", "ItemsPath": "$.a", "ItemProcessor": line(("B", {"Type": "Pass"}))}, 4, 2 * 5 + 2),
    ],
)
def test_a_small_execution_ends_within_a_few_turns_beside_large_ones(
    state: dict[str, Any], count: int, most: int
) -> None:
    """A small execution has every other turn beside large ones, however many lanes each of them has."""
    large, small = load(line(("A", state))), load(line(("A", query("$sum([1..9])"))))

    async def main() -> tuple[int, Any]:
        lanes, clock = CountingLanes(Pool(1)), RealClock()
        data = {"a": list(range(2_000))}
        begun = [large.start(data, clock=clock, perform=_nothing, lanes=lanes) for _ in range(count)]
        while len(lanes.taken) < 80:
            await asyncio.sleep(0)
        before = len(lanes.taken)
        # An execution has one place in the order, however many of its lanes wait.
        assert len(lanes._by_use) <= 2 * count + 16
        execution = await small.start({}, clock=clock, perform=_nothing, lanes=lanes).wait()
        turns = len(lanes.taken) - before
        assert [each.status for each in begun] == ["RUNNING"] * count
        for each in begun:
            each.stop()
        return turns, execution.output

    turns, output = asyncio.run(main())
    assert (output, turns <= most) == (45, True)
