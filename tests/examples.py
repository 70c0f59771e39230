"""How many examples a generated test draws: all of its number where the long tests run too, else a tenth.

`tests/conftest.py` decides which before it imports a test. Invariant: a test names one number, that of `make test-all`.
"""

from hypothesis import settings

ALL = 100
"""What Hypothesis draws by itself, for a test that says no number."""
SOME = 10
LEAST = 3


def examples(number: int) -> int:
    """Returns how many examples to draw of the `number` that `make test-all` draws."""
    return max(min(number, LEAST), number * settings().max_examples // ALL)
