"""Finds the module of a sink, and asks it to send: what its client raises becomes a refusal.

A module is imported when the first profile needs it. Invariant: no refusal holds what a service said in its own words,
which may quote an event; it has an error code.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import cast

from handlers.deliver.contract import Message, Promises, Refusal, Sink, Tools
from handlers.errors import StreamkeeperError
from handlers.profile.deliver_field import Target

# Of each kind the module: `lambda` is a word of Python's.
_MODULES = {"lambda": "lambda_function"}


@cache
def sink(kind: str) -> Sink:
    """The module of a kind of sink."""
    return cast(Sink, import_module(f"handlers.deliver.sinks.{_MODULES.get(kind, kind)}"))


def sending(target: Target, tools: Tools) -> tuple[Promises, Callable[[Sequence[Message]], Mapping[int, Refusal]]]:
    """What the target promises, and what sends a batch to it and raises nothing."""
    module = sink(target.kind)

    def send(batch: Sequence[Message]) -> Mapping[int, Refusal]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return module.send(batch, target, tools)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "Unknown"))
            refusal = Refusal(code, code in module.PROMISES.final)
        except BotoCoreError as error:
            refusal = Refusal(f"no answer: {type(error).__name__}")
        except StreamkeeperError as error:
            # The secret that signs cannot be read; the sentence names it, and not its value.
            refusal = Refusal(str(error))
        return dict.fromkeys(range(len(batch)), refusal)

    return module.PROMISES, send
