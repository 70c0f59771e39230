"""Reads the parameters of a request: ARNs, names and JSON texts.

Invariant: what AWS would refuse raises Refusal with the name of AWS's error. Example: `arn(parameters, "executionArn",
"execution")` returns the member's value, or raises InvalidArn where it names a state machine.
"""

import functools
import re
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from botocore.exceptions import UnknownRegionError
from botocore.loaders import create_loader
from botocore.regions import EndpointResolver

from states_language.scheduling.lanes import yield_for
from states_language.scheduling.writing import text_in_turns
from states_language.values import Document, parse_as_spelled, parsed

Parameters = dict[str, Any]
Answer = dict[str, Any]
Action = Callable[[Parameters], Answer | Awaitable[Answer]]

ACCOUNT, REGION = "000000000000", "us-east-1"
PREFIX = f"arn:aws:states:{REGION}:{ACCOUNT}"
SIGNED_FOR = "(region)"
"""The member in which an action finds the region of its request; no member of the API has such a name."""
INPUT_LIMIT_BYTES = 262_144
_ARN = re.compile(r"arn:aws[a-z-]*:states:[a-z0-9-]*:\d{12}:([A-Za-z]+):(.+)")
# "A name must not contain: white space, brackets < > { } [ ], wildcard characters ? *, special characters
# " # % \ ^ | ~ ` $ & , ; : /, control characters". Source: StartExecution in the AWS Step Functions API reference.
_BAD_NAME = re.compile(r"[\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Refusal(Exception):
    """A request that Step Functions would refuse; `code` is its error's name."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def arn(parameters: Parameters, name: str, *kinds: str) -> str:
    """Returns the ARN in this member; raises Refusal InvalidArn unless it names one of these kinds of resource."""
    value = str(parameters.get(name, ""))
    match = _ARN.fullmatch(value)
    if match is None:
        raise Refusal("InvalidArn", f"Invalid Arn: '{value}'")
    if match[1] not in kinds:
        raise Refusal("InvalidArn", f"Invalid Arn: 'Resource type not valid in this context: {match[1]}'")
    return value


def prefix(parameters: Parameters) -> str:
    """Returns what the ARNs begin with that the request makes, in the region for which it was signed."""
    region = parameters.get(SIGNED_FOR, REGION)
    return f"arn:{_partition(region)}:states:{region}:{ACCOUNT}"


@functools.cache
def _partition(region: str) -> str:
    try:
        return str(_regions().get_partition_for_region(region))
    except UnknownRegionError:
        return "aws"


@functools.cache
def _regions() -> EndpointResolver:
    return EndpointResolver(create_loader().load_data("endpoints"))


def is_name(name: str) -> bool:
    """Returns whether an execution or a machine may have this name."""
    return 1 <= len(name) <= 80 and _BAD_NAME.search(name) is None


def checked_name(name: str) -> str:
    """Returns the name of a machine or an execution; raises Refusal InvalidName."""
    if not is_name(name):
        raise Refusal("InvalidName", f"Invalid Name: '{name}'")
    return name


def read_input(text: str) -> Document | ValueError:
    """Returns an input as read, or why it cannot be; where others wait, they have turns while a long one is read."""
    try:
        text.encode()  # Half of a surrogate pair in the request itself is refused.
        yield_for(text)
        value = parsed(text)
        return Document(value, text_in_turns(value, sys.maxsize))
    except ValueError as problem:
        return problem
    except RecursionError:
        return ValueError("it is nested too deeply")


def parsed_request(body: bytes) -> Any:
    """Returns the value of a request's body, with halves of surrogate pairs as they are: a name with one is refused."""
    try:
        return parse_as_spelled(body.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
