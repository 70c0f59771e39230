"""Executions take turns on the event loop, and what costs too much is evaluated in another process."""

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any

import pytest
from hypothesis import given

from states_language import DefinitionError, Execution, RealClock, TaskCall, load
from states_language.jsonata.evaluation import HERE, compile_query
from states_language.scheduling.evaluator import answer
from states_language.scheduling.lanes import STATE, TURN, Beside, Lanes, Turns, here
from states_language.scheduling.pool import Pool
from tests.states_language.jsonata_expressions import EXPRESSIONS, INPUT
from tests.states_language.machines import line

TOO_LONG = "Expression evaluation timeout: Check for infinite loop"
CODED = "error during evaluation. [STD][0-9]{4}: "
BOUND = "error during evaluation: (Stack overflow|Expression evaluation)"
NOTHING = r"returned (nothing \(undefined\)|an unsupported result type)\."
ENDLESS = "($f := function($n) { $f($n + 1) }; $f(0))"


class Watched(Lanes):
    """Lanes that keep how many steps were taken between two renewals of a turn."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.taken = [0]

    def spend(self, steps: int) -> None:
        """Count."""
        self.taken[-1] += steps
        super().spend(steps)

    def _renew(self) -> None:
        self.taken.append(0)
        super()._renew()


async def _nothing(_: TaskCall) -> Any:
    return None


def ended(
    states: list[dict[str, Any]], data: Any, look: Callable[[Watched], object] = lambda _: None
) -> list[Execution]:
    """Run each state as a machine of its own, all at once, in lanes of one event loop."""

    async def main() -> list[Execution]:
        pool = Pool(2)
        lanes = Watched(pool)
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
    """A state that evaluates an expression."""
    return {"Type": "Pass", "QueryLanguage": "JSONata", "Output": f"{{% {expression} %}}"}


def test_no_pass_of_the_event_loop_takes_more_than_a_turn() -> None:
    """An endless recursion, a giant range, backtracking and thousands of expressions: a pass is a turn and one more."""
    attacks = [
        query(ENDLESS),
        query("$count([1..800000])"),
        query(f"$match('{'a' * 40}b', /^(a|aa)+$/)"),
        {"Type": "Pass", "QueryLanguage": "JSONata", "Output": ["{% $sum([1..100]) %}"] * 500},
        {"Type": "Pass", "Parameters": {"v.$": "$..*[?(@..b)]"}},
        *[query("1 + 1")] * 50,
    ]
    seen: list[int] = []
    executions = ended(attacks, {"a": [{"b": n} for n in range(3_000)]}, lambda lanes: seen.extend(lanes.taken))
    endless, counted, backtracked, many, scanned, *small = executions
    assert TOO_LONG in str(endless.cause)
    assert (endless.error, backtracked.error) == ("States.QueryEvaluationError", "States.QueryEvaluationError")
    assert (counted.output, len(many.output), scanned.status) == (800_000, 500, "SUCCEEDED")
    assert [each.output for each in small] == [2] * 50
    # The step that is one too many is counted; the other parts of an evaluation are charged when they are known.
    assert max(seen) <= TURN + STATE + 2 * HERE.steps


@pytest.mark.parametrize(
    "function", ["States.ArrayUnique($.a)", "States.JsonToString($.a)", "States.ArrayPartition($.a, 2)"]
)
def test_large_arguments_give_the_same_elsewhere(function: str) -> None:
    """An intrinsic function of a large array has the value that it has in virtual time."""
    state, data = {"Type": "Pass", "Parameters": {"v.$": function}}, {"a": list(range(5_000))}
    (execution,) = ended([state], data)
    assert execution.output == load(line(("A", state))).execute(data).output


@given(EXPRESSIONS)
def test_an_expression_fails_with_a_code_or_a_bound(expression: str) -> None:
    """Whatever is wrong with an expression, its failure is one of JSONata's or a bound, and no internal error."""
    try:
        compile_query(f"{{% {expression} %}}", "/States/A/Output")
    except DefinitionError:
        return
    job = {"expression": expression, "states": {"input": INPUT}, "variables": {}, "location": "Output"}
    failure = answer(job).get("failure", "error during evaluation. D1001: ")
    assert re.search(f"{CODED}|{BOUND}|{NOTHING}", failure), failure


def test_an_execution_of_many_lanes_gets_no_more_turns_than_another() -> None:
    """While Maps of forty iterations at a time run, a small execution is over within a few turns of the loop."""
    work = {"StartAt": "B", "States": {"B": {"Type": "Pass", "End": True}}}
    large = load(line(("A", {"Type": "Map", "ItemsPath": "$.a", "ItemProcessor": work})))
    small = load(line(("A", query("$sum([1..9])"))))

    async def main() -> tuple[int, Any]:
        pool = Pool(1)
        lanes = Watched(pool)
        data, clock = {"a": list(range(2_000))}, RealClock()
        begun = [large.start(data, clock=clock, perform=_nothing, lanes=lanes) for _ in range(4)]
        while len(lanes.taken) < 20:
            await asyncio.sleep(0)
        before = len(lanes.taken)
        execution = await small.start({}, clock=clock, perform=_nothing, lanes=lanes).wait()
        turns = len(lanes.taken) - before
        assert [each.status for each in begun] == ["RUNNING"] * 4
        for each in begun:
            each.stop()
        return turns, execution.output

    turns, output = asyncio.run(main())
    assert output == 45
    # Two turns, of entering the state and of its expression, each behind those of the four Maps.
    assert turns <= 2 * 5 + 2


def test_a_thread_that_waits_for_an_expression_lets_others_calculate() -> None:
    """One of the threads beside the loop calculates at a time; one that asks for an evaluation is none of them."""
    order: list[str] = []

    class Slow:
        async def ask(self, job: dict[str, Any]) -> dict[str, Any]:
            await others
            return job

    def asks(name: str) -> str:
        host = here()
        assert host is not None
        answer: str = host.ask({"name": name})["name"]
        order.append(answer)
        return answer

    def calculates() -> None:
        host = here()
        assert host is not None
        host.turn()
        order.append("calculated")

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        beside = Beside(loop, Slow())
        with ThreadPoolExecutor(3) as threads:
            asked = [loop.run_in_executor(threads, beside.run, asks, name) for name in "ab"]
            await loop.run_in_executor(threads, beside.run, calculates)
            others.set_result(None)
            return await asyncio.gather(*asked)

    loop = asyncio.new_event_loop()
    try:
        others: asyncio.Future[None] = loop.create_future()
        assert loop.run_until_complete(main()) == ["a", "b"]
    finally:
        loop.close()
    assert order[0] == "calculated"
    assert sorted(order[1:]) == ["a", "b"]


def test_turns_are_given_in_the_order_in_which_they_are_wanted() -> None:
    """Threads get the lock first come, first served, also before the one that gives it and wants it again."""
    turns, order = Turns(), []

    def want(name: str) -> None:
        turns.take()
        order.append(name)
        turns.give()

    turns.take()
    threads = []
    for name in "abc":
        threads.append(Thread(target=want, args=(name,)))
        threads[-1].start()
        while turns.wanted < len(threads):
            pass
    turns.give()
    want("last")
    for thread in threads:
        thread.join()
    assert order == ["a", "b", "c", "last"]
