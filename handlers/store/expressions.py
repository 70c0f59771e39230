"""Words the parts of a write's expressions, in which each attribute stands under its own name.

    placeholders(("cursor",)) -> {"#cursor": "cursor"}      setting(("cursor",)) -> "SET #cursor = :cursor"

Invariant: the same names give the same text, which is made once.
"""

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=64)
def placeholders(names: tuple[str, ...]) -> dict[str, str]:
    """The names of attributes as an expression refers to them; to be read only, for the next request has it too."""
    return {f"#{name}": name for name in names}


@lru_cache(maxsize=64)
def setting(names: tuple[str, ...]) -> str:
    """The update that sets each of the attributes."""
    return "SET " + ", ".join(f"#{name} = :{name}" for name in names)


def values_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """The values of the attributes as an expression refers to them."""
    return {f":{name}": value for name, value in attributes.items()}
