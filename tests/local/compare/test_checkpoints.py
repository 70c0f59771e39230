"""The cost of checkpoints follows from the prices, and agrees with the published table except for one cell."""

import json

import pytest

from local.cli import main
from local.compare.checkpoints import CheckpointCosts, compute_cells
from local.costs import prices


def test_all_published_amounts_but_one_follow_from_the_prices() -> None:
    """Of forty amounts one does not follow: 16 KB over 8 checkpoints are an SQS request, a read unit, 8 objects."""
    found = compute_cells(prices.read())
    (wrong,) = [cell for cell in found if not cell.is_equal]
    assert len(found) == 40
    assert (wrong.row, wrong.column, wrong.published, round(wrong.computed, 3)) == ("16 KB", "8", 3.735, 3.725)


def test_the_published_crossovers_follow_from_the_prices() -> None:
    """A transition costs over three durable operations, and is cheaper beyond 68 KB."""
    cost = CheckpointCosts(prices.read())
    assert (cost.transition_ratio(), cost.crossover_kb()) == (3.125, 68)


def test_the_command_marks_the_amount_that_does_not_follow(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has a mark and a sentence about the wrong amount, the JSON a field."""
    assert main(["compare", "--what", "checkpoints"]) == 0
    said = capsys.readouterr().out
    assert said.count("*") == 2
    assert "published as 3.735, which does not follow from the prices; 3.725 does" in " ".join(said.split())
    assert main(["compare", "--what", "checkpoints", "--json"]) == 0
    assert [cell["agrees"] for cell in json.loads(capsys.readouterr().out)["cells"]].count(False) == 1
    assert main(["compare", "--what", "hope"]) == 2
    said = capsys.readouterr().err
    assert said == "streamkeeper: --what must be one of strategies, backoff, checkpoints, not 'hope'.\n"
