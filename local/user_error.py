"""The error that a person gets when the command cannot do what they asked.

Invariant: the text of a UserError is one sentence that names what is wrong and what to do.
"""


class UserError(Exception):
    """The user's input or machine is at fault; the command prints the sentence and exits with 2."""
