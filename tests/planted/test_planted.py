"""Each planted defect is caught by the catchers that the table names: `table.py` says what a row is.

A row that can no longer be planted, or whose catcher lets it pass, fails by its name. The default run plants one for
each kind of catcher; `make test-all` plants all, and shows that the catchers find nothing without them.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.planted.runner import Runner
from tests.planted.table import ROOT, Change, Row, changed, rows

ROWS = rows()
# The last row of each kind of catcher, which the default run plants.
QUICK = {next(iter(row.caught_by[-1])): row for row in ROWS}
LONG = [pytest.param(row, id=row.name, marks=pytest.mark.long) for row in ROWS if row not in QUICK.values()]


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    """Yield the process that plants."""
    made = Runner()
    yield made
    made.close()


def test_each_row_can_be_planted() -> None:
    """Its old text is in its file exactly once, and its tests exist; no name means two defects of a file."""
    assert [problem for row in ROWS for problem in row.problems] == []
    names = [(row.name, row.changes[0].file) for row in ROWS]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_a_row_that_cannot_be_planted_is_named() -> None:
    """The text is missing or occurs twice, or the file or the test does not exist."""
    twice = Change("tests/planted/table.py", "self", "")
    row = Row("odd", (Change("none.py", "", ""), twice), ({"test": "tests/none.py::test_none"},))
    assert [problem.split(":")[0] for problem in row.problems] == ["odd"] * 3
    with pytest.raises(ValueError, match="has the old text"):
        changed([twice])


@pytest.mark.parametrize("row", [*(pytest.param(row, id=row.name) for row in QUICK.values()), *LONG])
def test_a_planted_defect_is_caught(runner: Runner, row: Row) -> None:
    """Each catcher that its row names catches it."""
    answers = runner.caught((*row.always, *row.changes), row.caught_by)
    missed = [f"{one['caught']}: {one['said']}" for one in answers if not one["caught"]]
    assert not missed, f"{row.name}: " + "\n".join(missed)
    assert len(answers) == len(row.caught_by)


def _sound() -> list[Any]:
    """Run each schedule and exploration once, with what is always changed."""
    found: dict[str, Any] = {}
    for row in ROWS:
        for catcher in row.caught_by:
            if "test" not in catcher:
                bare = {name: value for name, value in catcher.items() if name != "breaks"}
                found.setdefault(f"{bare}{row.always}", pytest.param(catcher, row.always, id=f"{row.name}: {bare}"))
    return [*found.values()]


@pytest.mark.long
@pytest.mark.parametrize(("catcher", "always"), _sound())
def test_without_the_defect_nothing_is_found(runner: Runner, catcher: Any, always: tuple[Change, ...]) -> None:
    """A catcher finds nothing in the correct code; a test passes there, as every run shows."""
    (answer,) = runner.caught(always, [catcher])
    assert answer["caught"] is False, answer["said"]
    assert answer["said"].startswith("broken: nothing"), answer["said"]


def test_what_is_planted_is_planted_in_the_child_alone(runner: Runner) -> None:
    """The file stays as it is, and the next child has correct code."""
    row = QUICK["group_model"]
    before = (ROOT / row.changes[0].file).read_bytes()
    assert runner.caught(row.changes, row.caught_by[:1])[0]["caught"]
    assert (ROOT / row.changes[0].file).read_bytes() == before
    assert runner.caught((), row.caught_by[:1])[0]["caught"] is False
