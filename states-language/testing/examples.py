"""How many examples a generated test draws: all of its number where the long tests run too, else a tenth.

Invariant: a test names one number, that of the long run. What `conftest.py` chooses holds before a test is imported.
"""

from hypothesis import HealthCheck, settings

ALL, SOME, LEAST = 100, 10, 3


def choose(markers: str, derandomize: bool) -> None:
    """Draw all examples, or a tenth where `markers` leave out the long tests.

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
    """Returns how many examples to draw of the `number` that the long run draws."""
    return max(min(number, LEAST), number * settings().max_examples // ALL)
