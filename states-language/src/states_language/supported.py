"""Writes docs/asl.md: what of the language is supported, from the tables that the interpreter itself uses.

Decides the page's words and order alone. `python -m states_language.supported` prints it. Invariant: what the page
lists is what the loader takes, for both read the same tables.
"""

import sys
from collections.abc import Iterable

from states_language.definition.load import TYPES
from states_language.definition.practices import MUCH
from states_language.distributed.item_reader import INPUT_TYPES
from states_language.distributed.result_writer import OUTPUT_TYPES, TRANSFORMATIONS
from states_language.history import LIMIT, PAYLOAD_LIMIT_BYTES
from states_language.jsonata.functions import ADDED
from states_language.jsonpath.choice_rules import OPERATORS
from states_language.jsonpath.intrinsic_functions import FUNCTIONS
from states_language.tasks.integrations import OPTIMISED
from states_language.variables import LARGEST_STORE_BYTES

HEAD = """# What of the Amazon States Language is supported

This page is made from the interpreter's own tables: `python -m states_language.supported` prints it. What is not
supported is refused when a definition is loaded, with the place and the rule."""
AIDS = f"""## For whoever writes a state machine

    streamkeeper asl check FILE... [--strict] [--json]
    streamkeeper asl run FILE --input JSON|@FILE --functions FUNCTIONS [--virtual] [--history] [--json]
    streamkeeper asl graph FILE [--path HISTORY] [--format svg|dot|mermaid]

`check` tells every problem with its JSON pointer, the rule and a hint, and warns of practices: a Task whose error
nobody catches, retries that may come to more than {MUCH:,} history events, a missing Comment, a loop that no
comparison of numbers or times bounds. Exit status: 0, 1 for a problem (with `--strict` for a warning too), 2 for a
file that cannot be read.

`run` prints the status, the states visited, and the output or the error; with `--virtual` a Wait takes no time.
Exit status: 0 where the execution succeeded, 1 where it did not, 2 where it could not be run. FUNCTIONS is a Python
module (its functions by name, - for _ too, or a dictionary FUNCTIONS), or a file that says how each function, or
`service:action`, answers; a name that is not there answers what it is given:

    resize-image:
      sequence:               # in turn; the last repeats
        - {{error: Busy, cause: try again, delay_s: 2}}
        - answer: {{width: 200}}
    dynamodb:putItem: {{answer: {{}}}}
    slow-report: {{never: true}}

`graph` draws a definition; `--path` marks what an execution visited, from what GetExecutionHistory answers or `run
--json --history` prints.

In Python, in virtual time:

    from states_language import load, fuzz
    machine = load("machine.asl.yml")
    execution = machine.execute({{"n": 1}}, functions={{"work": lambda payload, context: payload}})
    execution.status, execution.output, execution.error, execution.cause
    execution.path, execution.history, execution.transitions

`execute(..., history_limit=None)` lifts the {LIMIT:,} events; `keep_history=False` gives them to `on_event` alone.
`fuzz(machine)` is a Hypothesis strategy of cases: an input, and how each function and service answers, fails, times
out or answers too much; `case.run(machine)` is the execution.
"""


def page() -> str:
    """Return the text of docs/asl.md."""
    sections = [
        HEAD,
        "## States\n\n" + _listed(TYPES),
        "Query languages: JSONPath and JSONata. Variables by Assign, all of an execution's together up to "
        f"{LARGEST_STORE_BYTES:,} bytes.\n",
        "## Intrinsic functions\n\n" + _listed(sorted(FUNCTIONS)),
        "## JSONata\n\nAll of the language but `$eval`, and " + _listed(f"${name}" for name in ADDED),
        "## Distributed Map\n\nAn ItemReader of S3 takes "
        + _listed(INPUT_TYPES)
        + "\nA ResultWriter gives and writes results in the forms "
        + _listed((*TRANSFORMATIONS, *OUTPUT_TYPES)),
        "## Operators of a Choice Rule\n\nAnd, Or, Not; " + _listed(sorted(OPERATORS)),
        "## Service integrations\n\nA Lambda function by its ARN, and `arn:aws:states:::service:action`:\n\n"
        + _services(),
        "Every action of an AWS SDK: `arn:aws:states:::aws-sdk:service:action`, `.waitForTaskToken` too. What a call "
        "does is what the service behind it does; [the local Step Functions](stepfunctions.md) asks it by boto3.\n",
        f"## Limits\n\nA state's data: {PAYLOAD_LIMIT_BYTES:,} bytes of UTF-8. A history: {LIMIT:,} events. "
        "An execution: a year.\n",
        AIDS,
    ]
    return "\n".join(sections)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) + ".\n"


def _services() -> str:
    return "".join(
        f"- `{service}`: {', '.join(_action(name, patterns) for name, patterns in sorted(actions.items()))}\n"
        for service, actions in sorted(OPTIMISED.items())
    )


def _action(name: str, patterns: frozenset[str]) -> str:
    waits = ", ".join(f"`.{pattern}`" for pattern in sorted(patterns) if pattern)
    return f"`{name}`" + (f" ({waits})" if waits else "")


if __name__ == "__main__":
    sys.stdout.write(page())
