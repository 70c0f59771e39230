"""The error that a person gets when the command cannot do what they want.

Invariant: the text of a UserError is one sentence that names what is wrong and what to do.
"""

import contextlib
from collections.abc import Iterator


class UserError(Exception):
    """The user's input or machine is at fault; the command prints the sentence and exits with 2."""


@contextlib.contextmanager
def explain_os_errors(words: str, hint: str = "") -> Iterator[None]:
    """Raises an OSError as a UserError: the words, such as "x.toml cannot be read", the system's reason, the hint."""
    try:
        yield
    except OSError as problem:
        raise UserError(f"{words}: {problem.strerror or problem}{hint}.") from None
