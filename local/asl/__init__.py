"""The Amazon States Language interpreter: `load` a definition, `start` executions, read their history."""

from local.asl.callbacks import Pending, TokenClosed, Tokens, TokenUnknown
from local.asl.calls import Latencies, NoLatencies, Perform, TaskCall, TaskFailure, Whole
from local.asl.check import DefinitionError
from local.asl.definition import load
from local.asl.execution import Execution
from local.asl.fuzzing import fuzz
from local.asl.machine import Machine

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
