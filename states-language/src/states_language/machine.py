"""Starts executions of a loaded state machine, and names those that the caller does not name.

Invariant: executions never change their machine, so any number of them can run at once.
"""

from collections.abc import Mapping
from typing import Any, Unpack

from states_language.clock import Clock, VirtualClock, uuid4
from states_language.context import Identity
from states_language.execution import Execution, Options
from states_language.states.base import Line
from states_language.tasks.callbacks import Tokens
from states_language.tasks.calls import Perform
from states_language.tasks.lambdas import Functions
from states_language.tasks.stubs import Answer

PREFIX = "arn:aws:states:us-east-1:111111111111"
ROLE = "arn:aws:iam::111111111111:role/states-language"


class Machine:
    """A machine that can run, made by `load`. definition: as data. timeout_s: TimeoutSeconds, None if absent."""

    def __init__(self, line: Line, timeout_s: int | None, definition: dict[str, Any]) -> None:
        self.line = line
        self.timeout_s = timeout_s
        self.definition = definition

    def start(self, data: Any, *, clock: Clock, perform: Perform, **options: Unpack[Options]) -> Execution:
        """Start an execution on this JSON input in the running event loop, and return it.

        Raises ValueError for an input that is not a valid JSON value or is nested too deeply. An input that was read
        from JSON may be given as a Document, which is not read again. Names that are left out follow from the others;
        the execution's is a UUID of the clock's randomness. history_limit: None for a history without end.
        keep_history: False if only `on_event` gets the events. context: the whole Context Object of every state, State
        included, in place of the execution's own. lanes: those of an event loop that the execution shares with others,
        which must not wait for its expressions. redriven: where an earlier execution of the same name and input stood,
        which this one goes on from, after that one's history.
        """
        name, arn, machine_arn = options.get("name"), options.get("arn"), options.get("machine_arn")
        machine_name = options.get("machine_name")
        if machine_name is None:
            machine_name = (machine_arn or arn or PREFIX + ":stateMachine:machine").split(":")[6]
        if name is None:
            name = arn.rpartition(":")[2] if arn is not None else uuid4(clock.random)
        if machine_arn is None:
            prefix = PREFIX if arn is None else arn.partition(":execution:")[0]
            machine_arn = f"{prefix}:stateMachine:{machine_name}"
        if arn is None:
            arn = f"{machine_arn.replace(':stateMachine:', ':execution:')}:{name}"
        identity = Identity(name, arn, machine_name, machine_arn, options.get("role_arn", ROLE))
        return Execution(self.line, data, identity, self.timeout_s, clock, perform, options)

    def execute(
        self,
        data: Any = None,
        *,
        functions: Mapping[str, Answer] | None = None,
        clock: VirtualClock | None = None,
        perform: Perform | None = None,
        function_timeout_s: float = 900,
        tokens: Tokens | None = None,
        **options: Unpack[Options],
    ) -> Execution:
        """Run an execution from start to end in virtual time and return it; an input of None is {}.

        The functions run in this process; any answer that `run_machine` takes may replace a function. `perform` answers
        the other calls; a holder of a task token answers through `tokens`. `options` are those of `start`.
        """
        clock = clock or VirtualClock()
        sandbox = Functions(clock, functions or {}, function_timeout_s=function_timeout_s, other=perform, tokens=tokens)

        return self.run({} if data is None else data, clock=clock, perform=sandbox.perform, **options)

    def run(self, data: Any, *, clock: VirtualClock, perform: Perform, **options: Unpack[Options]) -> Execution:
        """Run an execution from start to end in virtual time and return it; the arguments are those of `start`."""

        async def main() -> Execution:
            return await self.start(data, clock=clock, perform=perform, **options).wait()

        return clock.run(main())
