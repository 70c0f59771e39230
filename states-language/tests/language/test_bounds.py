"""A result is measured before it is written as text, however often a definition repeats the same data."""

from typing import Any

import pytest

from machines import line, machine

LARGE = {"text": "x" * 260_000}
MANY = 500
PLACES = {f"place {number}.$": "$" for number in range(MANY)}
ARRAY = f"States.Array({','.join(['$'] * MANY)})"
DOUBLED = f"{'States.JsonToString(' * 9}States.Array('{chr(92) * 20_000}'){')' * 9}"
TOO_LARGE = "The state/task 'A' returned a result with a size exceeding the maximum number of bytes service limit."


@pytest.mark.parametrize(
    "state",
    [
        {"Type": "Pass", "Parameters": PLACES},
        {"Type": "Pass", "Parameters": {"deep": [{"er": PLACES}]}},
        {"Type": "Pass", "Parameters": {"all.$": ARRAY}},
        {"Type": "Pass", "Parameters": {"text.$": f"States.JsonToString({ARRAY})"}},
        {"Type": "Pass", "Parameters": {"text.$": f"States.Format('{'{}' * MANY}',{','.join(['$.text'] * MANY)})"}},
        {"Type": "Pass", "Parameters": {"text.$": DOUBLED}},
        {"Type": "Pass", "QueryLanguage": "JSONata", "Output": ["{% $states.input %}"] * MANY},
        {"Type": "Parallel", "Branches": [line((f"B{number}", {"Type": "Pass"})) for number in range(50)]},
        {"Type": "Parallel", "Branches": [line(("B", {"Type": "Pass"}))], "ResultSelector": PLACES},
    ],
)
def test_data_repeated_in_many_places_is_refused_as_too_large(state: dict[str, Any]) -> None:
    """A result of half a gigabyte, or a text that nine functions double, fails with States.DataLimitExceeded."""
    execution = machine(("A", state)).execute(LARGE)
    assert (execution.error, execution.cause) == ("States.DataLimitExceeded", TOO_LARGE)


def test_small_data_may_be_repeated_in_many_places() -> None:
    """Data within the limit is returned, however many places repeat it."""
    output = machine(("A", {"Type": "Pass", "Parameters": PLACES})).execute(1).output
    assert list(output.values()) == [1] * MANY
