"""Watches the project while the service runs, and applies a change as a deployment would.

It checks twice a second; a change counts once the next check sees the same files. Invariants: a change that
cannot be deployed is reported once, with the reason, and changes nothing; its correction is reported too; a change
that is made while the last one is applied is seen afterwards; whatever fails, the watch goes on.
"""

import asyncio
import contextlib
import os
import re
import zlib
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from local.service import osls
from local.service.deployed_code import CODE, STREAMS
from local.stages import ROOT
from local.terminal import UserError, suppress_failures

CHECK_EVERY_S = 0.5
# What ships to Lambda. In the template, profiles only change the names that the API knows, which `deploy_code` does.
SHIPPED = (CODE, STREAMS)
# The field in any TOML spelling, but not a comment about deliveries.
DELIVER = re.compile(rb"^\s*\[*\s*[\"']?deliver[\"']?\s*[=.\]]", re.MULTILINE)
_NO_SOURCE = ("__pycache__",)

Stamp = frozenset[tuple[str, int, int]]


def file_stamps(root: Path, sources: Iterable[str], excluded: str = "") -> Stamp:
    """Returns the paths, sizes and times of the files, except those in `excluded`."""
    left_out, found = str(root / excluded) if excluded else "", set()
    for source in sources:
        top = root / source
        inside = os.walk(top) if top.is_dir() else [(str(top.parent), list[str](), [top.name])]
        for folder, folders, names in inside:
            folders[:] = [name for name in folders if name not in _NO_SOURCE and f"{folder}/{name}" != left_out]
            for name in names:
                path = f"{folder}/{name}"
                with contextlib.suppress(FileNotFoundError):  # it was just removed
                    status = os.stat(path)
                    found.add((path, status.st_size, status.st_mtime_ns))
    return frozenset(found)


def delivering_profiles(streams: Path) -> Stamp:
    """Returns the stamps of the delivering profiles, of which the template contains more than the names."""
    folder = str(streams)
    profiles = (
        one for one in file_stamps(streams, ["."]) if os.path.dirname(one[0]) == folder and one[0].endswith(".toml")
    )
    return frozenset((path, says, 0) for path, *at in profiles if (says := _delivery_checksum(path, *at)) is not None)


@lru_cache(maxsize=1024)
def _delivery_checksum(path: str, _size: int, _changed_ns: int) -> int | None:
    """A number for a profile that delivers, else None; it is read once for each of its stamps."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return None  # it has just been removed
    return zlib.crc32(data) if DELIVER.search(data) else None


class Redeployment:
    """Watches the project at `root` for one stage; `say` prints a line.

    `deploy_code` gives functions the new code and profiles and returns lines about it, `deploy_template` applies a
    template and returns the names of what has changed, or raises UserError. `own` is the folder
    of the user's own profiles.
    """

    def __init__(
        self,
        deploy_code: Callable[[], Awaitable[list[str]]],
        deploy_template: Callable[[dict[str, Any]], Awaitable[list[str]]],
        stage: str,
        say: Callable[[str], None],
        root: Path = ROOT,
        own: Path | None = None,
    ) -> None:
        self._use_code, self._use_template = deploy_code, deploy_template
        self._stage = stage
        self._say = say
        self._root = root
        self._own = own
        self._code, self._template = self.stamps()
        self._refused = False

    async def run(self) -> None:
        """Watches until it is cancelled."""
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            with suppress_failures("the redeployment"):
                code, template = await asyncio.to_thread(self.stamps)
                if (code, template) == (self._code, self._template):
                    continue
                await asyncio.sleep(CHECK_EVERY_S)
                if await asyncio.to_thread(self.stamps) == (code, template):
                    await self.deploy(code, template)

    def stamps(self) -> tuple[Stamp, Stamp]:
        """Returns the stamps of what ships and of the template's sources."""
        template = file_stamps(self._root, osls.SOURCES, excluded=STREAMS)
        shipped = file_stamps(self._root, SHIPPED)
        if self._own:
            shipped |= file_stamps(self._own, ["."])
            template |= delivering_profiles(self._own)
        return shipped, template | delivering_profiles(self._root / STREAMS)

    async def deploy(self, code: Stamp, template: Stamp) -> None:
        """Applies the changes, and prints a line about each part.

        The template comes first, because changed code may need a variable or a function of the new one.
        """
        has_new_template = False
        if template != self._template:
            self._template = template
            try:
                delivers_own = self._own is not None and bool(delivering_profiles(self._own))
                compiled = await asyncio.to_thread(osls.template, self._stage, self._root, delivers=delivers_own)
                changed = await self._use_template(compiled)
            except (UserError, OSError) as problem:
                self._refused = True
                self._say(f"not redeployed, nothing changed: {problem}")
            else:
                if changed:
                    follows = "a stream gets new settings at its next handover, a new definition at its renewal"
                    self._say(f"redeployed {', '.join(changed)}: {follows}")
                elif self._refused:
                    self._say("the project equals the deployed one again")
                self._refused = False
                has_new_template = bool(changed)
        # A delivery that is new in the template also needs the new profiles.
        if has_new_template or code != self._code:
            self._code = code
            for line in await self._use_code():
                self._say(line)
