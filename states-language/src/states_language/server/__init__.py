"""Answers Step Functions' API: over HTTP, or inside a host of one's own. Needs the extra `server`.

    states = StepFunctions(folder, RealClock())
    tasks = TaskPerformer(invoke, client, states)  # `invoke` runs a function, `client` is botocore's of a service
    states.executions.perform = tasks.perform
    settle()
    await states.call("StartExecution", {"stateMachineArn": arn})  # or `answer`, for a request as it came

A host serves `application(states)`, an ASGI application, or puts `states.answer` behind an application of its own; it
ends with `states.executions.close()`, `states.close()` and `tasks.close()`. `python -m states_language.server` is such
a host. What a host deploys is passed to `StepFunctions` as `loaded_stack` returns it, and later to `deploy`. `Refusal`
is an error with AWS's name. These modules are public too: `sdk` (how Tasks spell names, values and errors of services),
`threaded` (a server in a thread, for tests), `http_task` (http:invoke and its connections).
All else may change without notice.
"""

import sys
from importlib.util import find_spec

if missing := [name for name in ("botocore", "starlette", "urllib3", "uvicorn") if find_spec(name) is None]:
    words = f"The server needs {', '.join(missing)}: pip install 'states-language[server]'"
    # Python names a program by its option while it imports the packages of `python -m`.
    if sys.argv[0] == "-m":
        print(words, file=sys.stderr)
        sys.exit(2)
    raise ModuleNotFoundError(words, name=missing[0])

from states_language.server.actions import StepFunctions, application, settle
from states_language.server.executions import Executions
from states_language.server.journals import Closing, Opening
from states_language.server.known_executions import KnownExecution, Retention
from states_language.server.machines import StateMachine, loaded_stack
from states_language.server.requests import ACCOUNT, REGION, Refusal, is_name
from states_language.server.task_performer import Answer, Invoke, TaskPerformer, TooManyRequests, UnknownFunction

__all__ = ["ACCOUNT", "REGION", "Answer", "Closing", "Executions", "Invoke", "KnownExecution", "Opening", "Refusal",
           "Retention", "StateMachine", "StepFunctions", "TaskPerformer", "TooManyRequests", "UnknownFunction",
           "application", "is_name", "loaded_stack", "settle"]  # fmt: skip
