"""Reads the price list, prices.toml, the only place in the project with prices."""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("prices.toml")
HOURS = 730  # of a month
MONTH_S = HOURS * 3600
MILLION = 1_000_000
GB = 1024**3


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of one region, as of `as_of`."""

    as_of: str
    region: str
    _tables: dict[str, dict[str, float]]

    def usd(self, table: str, name: str) -> float:
        """The price of one unit, even if the list has that of a million."""
        price = self._tables[table][name]
        return price / MILLION if name.startswith("million_") else price

    def lambda_usd(self, calls: float, billed_ms: float, memory_mb: float) -> float:
        """The price of calls of a function on arm64 that run so long in all."""
        gb_s = billed_ms / 1000 * memory_mb / 1024
        return gb_s * self.usd("lambda", "gb_second_arm64") + calls * self.usd("lambda", "million_requests")

    def log_usd(self, size: float) -> float:
        """The price of so many bytes of a log."""
        return size / GB * self.usd("cloudwatch", "log_gb")

    def also(self, table: str, name: str, usd: float) -> "Prices":
        """The list with one more price, or a different one."""
        return replace(self, _tables={**self._tables, table: {**self._tables.get(table, {}), name: usd}})


def read(path: Path = FILE) -> Prices:
    """The prices in the file."""
    data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    tables = {name: value for name, value in data.items() if isinstance(value, dict)}
    return Prices(data["as_of"], data["region"], tables)
