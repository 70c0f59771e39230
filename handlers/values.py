"""`dataclass` for everything that Lambda imports, at a fifth of the CPU: a cold start makes a hundred such classes.

For each class `dataclasses` writes and compiles up to seven methods, in 0.3 ms. Here that is `__init__` alone, and the
other methods are shared. Two things differ at run time. Only mypy keeps an instance `frozen`, which also makes
`__init__` three times as fast; and `repr` detects no cycles. Use `fields`, `field` and `replace` of `dataclasses`.
"""

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, **more):
        """Makes a class a dataclass, as `dataclasses.dataclass` does."""

        def made(plain):
            kind = dataclasses.dataclass(plain, eq=False, repr=False, **more)
            if eq and "__eq__" not in plain.__dict__:
                _make_equal(kind, is_hashed=frozen)
            if repr and "__repr__" not in plain.__dict__:
                kind.__repr__ = _repr
            return kind

        return made if cls is None else made(cls)


def _make_equal(kind: Any, *, is_hashed: bool) -> None:
    """Makes instances of exactly this class equal if their compared fields are."""
    names = [one.name for one in dataclasses.fields(kind) if one.compare]
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda _one: ()

    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    kind.__eq__ = __eq__
    kind.__hash__ = (lambda self: hash(values(self))) if is_hashed else None


def _repr(self: Any) -> str:
    shown = [f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr]
    return f"{self.__class__.__qualname__}({', '.join(shown)})"
