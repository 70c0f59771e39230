"""The Amazon States Language interpreter: `load` a definition, `start` executions, read their history."""

from states_language.definition.fields import DefinitionError
from states_language.definition.load import load
from states_language.execution import Execution
from states_language.fuzzing import fuzz
from states_language.machine import Machine
from states_language.tasks.callbacks import Pending, TokenClosed, Tokens, TokenUnknown
from states_language.tasks.calls import Latencies, NoLatencies, Perform, TaskCall, TaskFailure, Whole

__all__ = [
    "DefinitionError",
    "Execution",
    "Latencies",
    "Machine",
    "NoLatencies",
    "Pending",
    "Perform",
    "TaskCall",
    "TaskFailure",
    "TokenClosed",
    "TokenUnknown",
    "Tokens",
    "Whole",
    "fuzz",
    "load",
]
