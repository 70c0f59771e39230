"""docs/costs.md has what a replay of a month costs at the prices that it lists, and README has its sums."""

import re
from pathlib import Path

from local.replay.command import replay
from local.replay.scenario import read
from local.stages import load

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = (ROOT / "docs" / "costs.md").read_text(encoding="utf-8")


def rows() -> dict[str, list[str]]:
    """The cells of each row of the page's tables, by the first one."""
    lines = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    return {cells[0].strip("* "): [cell.strip("* ") for cell in cells[1:]] for cells in lines}


def test_lambda_and_step_functions_cost_what_a_replay_uses() -> None:
    """A month's Tasks and transitions, as the machine and the settings are now, at the price of one."""
    month = replay(read(HERE / "month.yml", "prod"))
    tasks_ms = sum((one.to_ms or month.until_ms) - one.from_ms for one in month.spans if one.kind == "task")
    price_usd = float(rows()["Lambda, GB-second on arm64"][0])
    cost_usd = f"{tasks_ms / 1000 * int(load('prod')['memory_mb']) / 1024 * price_usd:.2f}"
    assert rows()["Lambda"][:2] == [cost_usd, cost_usd]

    price_usd = float(rows()["Step Functions, million transitions (retries count)"][0]) / 1_000_000
    cost_usd = f"{month.transitions * price_usd:.2f}"
    assert rows()["Step Functions"] == [cost_usd, cost_usd, f"about {round(month.transitions, -2):,} transitions"]
    assert f"with about {round(len(month.connections), -2):,} connections" in " ".join(PAGE.split())


def test_the_parts_make_the_sum() -> None:
    """To a cent for each part, since they are rounded."""
    parts = list(rows().items())
    first = [name for name, _ in parts].index("Lambda")
    last = [name for name, _ in parts].index("a stream")
    for column in (0, 1):
        amounts = [float(cells[column].replace("–", "0")) for _, cells in parts[first:last]]
        assert abs(sum(amounts) - float(parts[last][1][column])) <= 0.011 * len(amounts) / 2


def test_the_readme_has_the_sums() -> None:
    """Every amount in README stands in the page."""
    amounts = re.findall(r"\$(\d+\.\d\d)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(amounts) == 4
    assert [amount for amount in amounts if not re.search(rf"\b{re.escape(amount)}\b", PAGE)] == []
