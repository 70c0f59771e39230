"""What a person who starts the local service is told when it cannot do what they asked.

Decides nothing. Invariant: the text of a UserError is one sentence that names what is wrong and what to do.
"""


class UserError(Exception):
    """The user's input or machine is at fault; the command prints the sentence and exits with 2."""
