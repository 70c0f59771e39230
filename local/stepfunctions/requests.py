"""What a request may say: names, and JSON as input.

Decides which names are good and which texts are JSON to AWS. It knows no action. Invariant: what is refused has AWS's
name for it.
"""

import re
from typing import Any

from states_language.values import parse_json

INPUT_LIMIT_BYTES = 262_144
# "A name must not contain: white space, brackets < > { } [ ], wildcard characters ? *, special characters
# " # % \ ^ | ~ ` $ & , ; : /, control characters". Source: StartExecution in the AWS Step Functions API reference.
_BAD_NAME = re.compile(r"[\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Refusal(Exception):
    """A request that Step Functions would refuse; `code` is its error's name."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def is_name(name: str) -> bool:
    """Returns whether an execution or a machine may have this name."""
    return 1 <= len(name) <= 80 and _BAD_NAME.search(name) is None


def parsed(text: str | bytes) -> Any:
    """Returns what the JSON text says; ValueError where it is none: NaN and infinities are Python's, not JSON's."""
    try:
        return parse_json(text.decode() if isinstance(text, bytes) else text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
