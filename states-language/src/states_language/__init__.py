"""The Amazon States Language: `load` a definition, run it in virtual or real time, read its history.

    machine = load("order.asl.yml")
    execution = machine.execute({"id": 7}, functions={"charge": lambda payload, context: {"paid": True}})
    execution.status, execution.output, execution.path

The names below are the library. These modules are public too, with all that lies in them: `clock` (virtual and real
time), `values` (JSON as AWS writes it), `timestamps`, `failures` (Error Names), `testing` (what the pytest plugin
gives), `fuzzing` (cases for Hypothesis), `definition` (problems, hints, practices, places), `drawing` (definitions as
pictures), `tasks` (what performs the calls of Tasks, and mock configurations), `states.retry` (Retriers and Catchers),
`distributed.report` (what is known of a Map Run), `place` (where an execution stands, and its redrive),
`scheduling.lanes` and `scheduling.pool` and `scheduling.writing` (executions that share a loop).
Two packages offer what their own docstrings say: `server` (Step Functions' API, with the extra of that name) and
`workbench` (the commands). All else may change without notice.
"""

from states_language.clock import Clock, RealClock, Timer, VirtualClock
from states_language.definition.fields import DefinitionError
from states_language.definition.load import load
from states_language.definition.practices import Advice, warnings
from states_language.definition.problems import problems
from states_language.definition.source import read_definition
from states_language.execution import Execution
from states_language.failures import TaskFailure
from states_language.fuzzing import fuzz
from states_language.history import Event
from states_language.machine import Machine
from states_language.tasks.callbacks import Pending, TokenClosed, Tokens, TokenUnknown
from states_language.tasks.calls import Latencies, NoLatencies, Perform, TaskCall, Whole
from states_language.tasks.lambdas import Function, Functions
from states_language.tasks.stubs import ECHO, Behaviour

__version__ = "0.1.0"

__all__ = ["ECHO", "Advice", "Behaviour", "Clock", "DefinitionError", "Event", "Execution", "Function", "Functions",
           "Latencies", "Machine", "NoLatencies", "Pending", "Perform", "RealClock", "TaskCall", "TaskFailure",
           "Timer", "TokenClosed", "TokenUnknown", "Tokens", "VirtualClock", "Whole", "fuzz", "load", "problems",
           "read_definition", "warnings"]  # fmt: skip
