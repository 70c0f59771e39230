"""Lambda's context object, as far as a function that needs no time reads it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Context:
    """Of one invocation."""

    aws_request_id: str = "invocation-1"
