"""One deliberate defect: what is replaced, how that must show, and where it is looked for.

Invariant: of what may be replaced one thing is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from handlers.connection.manager import Manager
from local.chaos.schedule import Schedule


@dataclass(frozen=True)
class Defect:
    """A defect: what is replaced (a name and its replacement, or an edit of the machine) and how it must show.

    It is looked for in generated schedules, or in those that are `like` one but for their seed. The run goes on for
    `more_ms` longer than others, where it shows in the calm alone.
    """

    name: str
    shows_as: set[str]
    manager: type[Manager] | None = None
    store: tuple[str, Callable[..., Any]] | None = None
    machine: Callable[[dict[str, Any]], None] | None = None
    function: tuple[str, Any] | None = None
    among: Callable[[Schedule], bool] = lambda _schedule: True
    like: Schedule | None = None
    more_ms: int = 0
