"""Watches the project while the service runs, and applies a change as a deployment would.

It looks twice a second; a change counts when the next look sees the same files. Invariants: what cannot be deployed is
reported once and changes nothing; a change that is made while the last one is applied is seen afterwards.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from local.service import osls
from local.stages import ROOT
from local.user_error import UserError

LOOK_EVERY_S = 0.5
# What ships to Lambda and is read where it lies.
CODE = ("handlers", "env/streams")
_NO_SOURCE = ("__pycache__",)

Stamp = frozenset[tuple[str, int, int]]


class Deployed(Protocol):
    """What takes a change; `local.service.Service` does."""

    def take_code(self) -> None:
        """Lets every function that starts from now on have the new code."""

    async def take_template(self, template: dict[str, Any]) -> list[str]:
        """Returns the names of what has changed; raises UserError."""


def stamp(root: Path, sources: Iterable[str]) -> Stamp:
    """Returns what tells one state of the files from another: their paths, sizes and times."""
    found = set()
    for source in sources:
        top = root / source
        for path in [top] if top.is_file() else top.rglob("*"):
            if path.parent.name in _NO_SOURCE:
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # it has just been taken away
            if path.is_file():
                found.add((str(path), status.st_size, status.st_mtime_ns))
    return frozenset(found)


class Redeploy:
    """Watches the project at `root` for the service of one stage; `say` prints a line."""

    def __init__(self, service: Deployed, stage: str, say: Callable[[str], None], root: Path = ROOT) -> None:
        self._service = service
        self._stage = stage
        self._say = say
        self._root = root
        self._code = stamp(root, CODE)
        self._template = stamp(root, osls.SOURCES)

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            code, template = await asyncio.to_thread(self._look)
            if (code, template) == (self._code, self._template):
                continue
            await asyncio.sleep(LOOK_EVERY_S)
            if await asyncio.to_thread(self._look) == (code, template):
                await self.take(code, template)

    def _look(self) -> tuple[Stamp, Stamp]:
        return stamp(self._root, CODE), stamp(self._root, osls.SOURCES)

    async def take(self, code: Stamp, template: Stamp) -> None:
        """Has the service take what differs from what it has, and says so in a line."""
        if code != self._code:
            self._code = code
            self._service.take_code()
            self._say("redeployed the code: functions that start from now on have it, so a stream from its handover on")
        if template != self._template:
            self._template = template
            try:
                compiled = await asyncio.to_thread(osls.template, self._stage, self._root)
                changed = await self._service.take_template(compiled)
            except (UserError, OSError) as problem:
                self._say(f"not redeployed, what runs stays as it was: {problem}")
            else:
                if changed:
                    follows = "a stream has new settings from its handover on and a new definition from its renewal on"
                    self._say(f"redeployed {', '.join(changed)}: {follows}")
