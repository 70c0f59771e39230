"""The length of an execution's history."""

from machines import machine
from states_language import Machine


def counting_machine(most: int) -> tuple[Machine, dict[str, int]]:
    """Return a machine that loops through a Pass and a Choice, and the input for `most` rounds."""
    add = {"Type": "Pass", "Parameters": {"n.$": "States.MathAdd($.n, 1)", "most.$": "$.most"}, "Next": "Look"}
    again = {"Variable": "$.n", "NumericLessThanPath": "$.most", "Next": "Count"}
    look = {"Type": "Choice", "Choices": [again], "Default": "Over"}
    return machine(("Count", add), ("Look", look), ("Over", {"Type": "Succeed"})), {"n": 0, "most": most}


def test_the_limit_of_the_history_can_be_lifted_and_lowered() -> None:
    """Event 25,000 ends the execution unless the limit is lifted; a lower limit ends it earlier."""
    loop, data = counting_machine(7000)
    cut, whole, short = (loop.execute(data, history_limit=limit) for limit in (25_000, None, 10))
    assert (cut.status, cut.error, len(cut.history)) == ("FAILED", "States.Runtime", 25_000)
    assert cut.cause == "The execution reached the maximum number of history events (25000)."
    assert cut.history[-1]["previousEventId"] == 24_999
    assert (whole.status, whole.output, len(whole.history)) == ("SUCCEEDED", {"n": 7000, "most": 7000}, 28_004)
    assert whole.history[:24_999] == cut.history[:24_999]
    assert [event["type"] for event in short.history] == [event["type"] for event in whole.history[:9]] + [
        "ExecutionFailed"
    ]
