"""How many examples a generated test draws: its full number if the long tests run too, or else a tenth.

Invariant: a test names one number, that of the long run. `conftest.py` calls `choose` before tests are imported.
"""

from hypothesis import HealthCheck, settings

ALL, SOME, LEAST = 100, 10, 3


def choose(markers: str, derandomize: bool) -> None:
    """Draw all examples, or a tenth if `markers` leave out the long tests.

    Examples have no time limit, and slow generation is no failure: a busy machine is not a counterexample.
    """
    settings.register_profile(
        "chosen",
        max_examples=SOME if markers == "not long" else ALL,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=derandomize,
    )
    settings.load_profile("chosen")


def examples(number: int) -> int:
    """Return how many of the long run's `number` of examples to draw."""
    return max(min(number, LEAST), number * settings().max_examples // ALL)
