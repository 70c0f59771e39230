"""Functions for tests of sandboxes: one module with a function for each case."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from local.functions.function_pool import FunctionPool
from local.stack import Function

MODULE = """
import os, sys, time
calls = 0

class StreamDropped(Exception):
    pass

def echo(event, lambda_context):
    global calls
    calls += 1
    remaining_ms = lambda_context.get_remaining_time_in_millis()
    return {"event": event, "pid": os.getpid(), "calls": calls, "remaining_ms": remaining_ms}

def fail(event, lambda_context):
    raise StreamDropped("The upstream closed the connection.")

def leave(event, lambda_context):
    os._exit(3)

def busy(event, lambda_context):
    open(event["marker"], "w").write(str(os.getpid()))
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            pass

def environment(event, lambda_context):
    return dict(os.environ) | {"invoked": lambda_context.invoked_function_arn}

def speak(event, lambda_context):
    print("spoken")
"""


@contextlib.asynccontextmanager
async def functions_of(
    folder: Path, limit_s: int = 5, idle_s: float = 60, starts_within_s: float = 30
) -> AsyncIterator[FunctionPool]:
    """Yields a function for each name in MODULE, and one whose module cannot be imported."""
    (folder / "sample.py").write_text(MODULE)
    (folder / "broken.py").write_text("import no_such_module\n")
    handlers = ["sample.echo", "sample.fail", "sample.leave", "sample.busy", "sample.environment", "sample.speak"]
    handlers.append("broken.handler")
    specs = [
        Function(handler.split(".")[-1], handler, limit_s, 128, {"EVENTS_TABLE": "events"}) for handler in handlers
    ]
    aws = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    functions = FunctionPool(specs, aws, folder, folder / "logs", idle_s, starts_within_s=starts_within_s)
    try:
        yield functions
    finally:
        await functions.close()
