"""The interpreter's benchmarks: what they count is right; how long it takes is not tested."""

import pytest

from bench import interpreter, year


@pytest.mark.long
def test_each_interpreter_runs_the_same_loop_to_its_end() -> None:
    """Five rounds are eleven transitions for all three, and the table has a row for each and for each ratio."""
    lengths = (5,)
    rows = [*interpreter.ours(lengths), *interpreter.npm(lengths), *interpreter.moto(lengths, 20)]
    assert [(row.interpreter, row.transitions, row.whole) for row in rows] == [
        (interpreter.OURS, 11, True),
        (interpreter.NPM, 11, True),
        (interpreter.MOTO, 11, True),
    ]
    assert [row.events for row in rows] == [24, 0, 24]
    assert {peer: list(multiples) for peer, multiples in interpreter.ratios(rows).items()} == {
        interpreter.NPM: ["5"],
        interpreter.MOTO: ["5"],
    }
    assert len(interpreter.table(rows)) == 2 * (1 + len(rows) + 2) + 1


def test_the_hottest_functions_are_named() -> None:
    """Five of them, each with its share."""
    hottest = interpreter.hottest(50)
    assert len(hottest) == 5
    assert all(one.endswith("%") for one in hottest)


def test_three_days_cross_a_renewal_without_a_failure() -> None:
    """A lane makes a pass every 28 minutes, so a hundred are due after two days; nothing fails and all is connected."""
    figures = year.measure(3)
    assert (figures.executions, figures.failed) == (2, 0)
    assert 3 * 100 < figures.connections < 3 * 110
