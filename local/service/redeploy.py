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
# What ships to Lambda, and is read in place.
CODE = ("handlers", "env/streams")
_NO_SOURCE = ("__pycache__",)

Stamp = frozenset[tuple[str, int, int]]


class Deployed(Protocol):
    """A service that accepts changes; `local.service.lifecycle.Service` does."""

    def use_code(self) -> None:
        """Gives every function that starts from now on the new code."""

    async def use_template(self, template: dict[str, Any]) -> list[str]:
        """Applies the template and returns the names of what changed; raises UserError."""


def stamp(root: Path, sources: Iterable[str]) -> Stamp:
    """Returns the paths, sizes and times of the files; they differ when a file has changed."""
    files = set()
    for source in sources:
        top = root / source
        for path in [top] if top.is_file() else top.rglob("*"):
            if path.parent.name in _NO_SOURCE:
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # it has just been removed
            if path.is_file():
                files.add((str(path), status.st_size, status.st_mtime_ns))
    return frozenset(files)


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
        """Watches until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            code, template = await asyncio.to_thread(self._look)
            if (code, template) == (self._code, self._template):
                continue
            await asyncio.sleep(LOOK_EVERY_S)
            if await asyncio.to_thread(self._look) == (code, template):
                await self.deploy(code, template)

    def _look(self) -> tuple[Stamp, Stamp]:
        return stamp(self._root, CODE), stamp(self._root, osls.SOURCES)

    async def deploy(self, code: Stamp, template: Stamp) -> None:
        """Applies what has changed, and prints one line about it."""
        if code != self._code:
            self._code = code
            self._service.use_code()
            self._say("redeployed the code: a stream has it from its next handover on")
        if template != self._template:
            self._template = template
            try:
                compiled = await asyncio.to_thread(osls.template, self._stage, self._root)
                changed = await self._service.use_template(compiled)
            except (UserError, OSError) as problem:
                self._say(f"not redeployed, nothing changed: {problem}")
            else:
                if changed:
                    follows = "a stream has new settings from its next handover on, a new definition from its renewal"
                    self._say(f"redeployed {', '.join(changed)}: {follows}")
