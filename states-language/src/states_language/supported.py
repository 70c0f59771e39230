"""Writes docs/supported.md, the list of what is supported, from the tables that the interpreter itself uses.

`python -m states_language.supported` prints it. Invariant: the page lists exactly what the loader takes, because both
read the same tables.
"""

import sys
import textwrap
from collections.abc import Iterable, Iterator

from states_language.definition.load import TYPES
from states_language.distributed.item_formats import INPUT_TYPES
from states_language.distributed.item_reader import MANIFESTS
from states_language.distributed.item_reader import TRANSFORMATIONS as READINGS
from states_language.distributed.result_writer import OUTPUT_TYPES, TRANSFORMATIONS
from states_language.history import LIMIT, PAYLOAD_LIMIT_BYTES
from states_language.jsonata.functions import ADDED
from states_language.tasks.resources import OPTIMISED
from states_language.variables import LARGEST_STORE_BYTES

HEAD = """# What of the Amazon States Language is supported

This page is made from the interpreter's own tables: `python -m states_language.supported` prints
it. What is not supported is refused when a definition is loaded, with the place and the rule.
"""


def page() -> str:
    """Return the text of docs/supported.md."""
    sections = [
        HEAD,
        "## States\n",
        _listed(TYPES),
        _wrapped(
            "Query languages: JSONPath and JSONata. Variables by Assign, all of an execution's together up to "
            f"{LARGEST_STORE_BYTES:,} bytes."
        ),
        "All of AWS's intrinsic functions and operators of a Choice Rule.\n",
        "## JSONata\n",
        _listed((f"${name}" for name in ADDED), "All of the language as of version 2.0.6 but `$eval`, and "),
        "## Distributed Map\n",
        _listed(INPUT_TYPES, "An ItemReader of S3 takes "),
        _listed((*READINGS, *MANIFESTS), "It reads a list of objects, or what a manifest names, by "),
        _listed((*TRANSFORMATIONS, *OUTPUT_TYPES), "A ResultWriter gives and writes results in the forms "),
        "## Service integrations\n",
        "A Lambda function by its ARN, and `arn:aws:states:::service:action`:\n",
        "".join(_services()),
        _wrapped(
            "Every action of an AWS SDK: `arn:aws:states:::aws-sdk:service:action`, `.waitForTaskToken` too. What a "
            "call does is decided by what performs it: a function of the test, or a service."
        ),
        "## Limits\n",
        _wrapped(
            f"A state's data: {PAYLOAD_LIMIT_BYTES:,} bytes of UTF-8. A history: {LIMIT:,} events, unless "
            "`history_limit=None` lifts it. An execution: a year."
        ).rstrip(),
    ]
    return "\n".join(sections) + "\n"


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 98, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) + "\n"


def _listed(names: Iterable[str], before: str = "") -> str:
    return _wrapped(before + ", ".join(f"`{name}`" for name in names) + ".")


def _services() -> Iterator[str]:
    for service, actions in sorted(OPTIMISED.items()):
        listed = []
        for name, patterns in sorted(actions.items()):
            waits = ", ".join(f"`.{pattern}`" for pattern in sorted(patterns) if pattern)
            listed.append(f"`{name}`" + (f" ({waits})" if waits else ""))
        yield _wrapped(f"- `{service}`: {', '.join(listed)}", "  ")


if __name__ == "__main__":
    sys.stdout.write(page())
