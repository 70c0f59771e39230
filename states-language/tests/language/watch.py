"""The parts of a process that the package could change, to compare before and after. `work` imports the package.

before = watch.all(); watch.work(); watch.report(before)
"""

import asyncio
import csv
import gc
import importlib
import inspect
import json
import pkgutil
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

EXPRESSIONS = (
    "function($x){$x} ? 'yes' : 'no'", "$boolean(function($x){$x})", "$type(/a/)", "$string(1e21)", "$sort([3,1,2])",
    "$map(['a','b'], $uppercase)", "[1,2][-1]", "$replace('a1', /[0-9]/, '')", "1 ?: 2", "$eval('1+1')",
    "$clone({'a': null})", "$distinct([1, true])", "$formatNumber(12.5, '#0.0')", "1 in [true]", "$nothing(?)",
    "$reduce([1,2], function($a,$b){$a+$b})", "$sum(1/0)", "'\\uD834\\uDD1E'", "(1", "!", "$pad('x', 2.5)",
)  # fmt: skip
_DEEP = "($f := function($n){ $n > 0 ? $map([1], function($v){ $f($n-1) }) : 0 }; $f(200))"
_STATE = {"Type": "Pass", "Output": "{% " + _DEEP + " %}", "End": True, "QueryLanguage": "JSONata"}
_MACHINE = {"StartAt": "A", "States": {"A": _STATE}}


def answers() -> dict[str, str]:
    """Return what the host's jsonata-python returns for a table of expressions."""
    jsonata = importlib.import_module("jsonata")
    found = {}
    for text in EXPRESSIONS:
        try:
            found[text] = repr(jsonata.Jsonata(text).evaluate({"a": None}))
        except Exception as problem:
            found[text] = f"{type(problem).__name__}: {problem}"
    return found


def members() -> dict[str, int]:
    """Return the identities of all names that jsonata's modules and classes define."""
    found = {}
    package = importlib.import_module("jsonata")
    for module in pkgutil.iter_modules(package.__path__, "jsonata."):
        if module.ispkg:
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if not name.startswith("__"):
                found[f"{module.name}.{name}"] = id(value)
            if inspect.isclass(value) and value.__module__.startswith("jsonata"):
                found |= {f"{module.name}.{name}.{inner}": id(each) for inner, each in vars(value).items()}
    return found


def process() -> dict[str, Any]:
    """Return the settings that all threads share."""
    return {
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "garbage": [gc.get_threshold(), gc.isenabled(), gc.get_freeze_count()],
        "hooks": [id(hook) for hook in (sys.excepthook, sys.displayhook, threading.excepthook, sys.unraisablehook)],
        "streams": [id(sys.stdout), id(sys.stderr), id(warnings.showwarning)],
        "finders": [id(finder) for finder in sys.meta_path],
        "stack": threading.stack_size(),
        "cell": csv.field_size_limit(),
    }


def all() -> dict[str, Any]:
    """Return answers, members and process settings."""
    return {**answers(), **members(), **process()}


def work() -> None:
    """Import all modules and run a deep expression here, in threads and in a server."""
    for name in ("states_language", "pytest_states_language"):
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    assert work_here() == "SUCCEEDED"
    threads = [threading.Thread(target=work_here) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(_serve())


def work_here() -> str:
    """Return the status of a machine whose expression nests 200 functions."""
    return str(importlib.import_module("states_language.testing").run_machine(_MACHINE).status)


async def _serve() -> None:
    server, clock = importlib.import_module("states_language.server"), importlib.import_module("states_language.clock")
    role = "arn:aws:iam::000000000000:role/any"
    with tempfile.TemporaryDirectory() as folder:
        states = server.StepFunctions(Path(folder), clock.RealClock())
        states.executions.perform = object()
        made = await states.call(
            "CreateStateMachine", {"name": "m", "definition": json.dumps(_MACHINE), "roleArn": role}
        )
        begun = await states.call("StartExecution", {"stateMachineArn": made["stateMachineArn"]})
        while (await states.call("DescribeExecution", {"executionArn": begun["executionArn"]}))["status"] == "RUNNING":
            await asyncio.sleep(0.01)
        states.executions.close()
        states.close()


def report(before: dict[str, Any]) -> None:
    """Print what differs, as JSON."""
    after = all()
    print(json.dumps({name: [value, after.get(name)] for name, value in before.items() if value != after.get(name)}))
