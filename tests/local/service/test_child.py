"""A child process of the service that dies, and cannot be started again."""

import asyncio
import errno
import os
from pathlib import Path
from typing import IO

from local.service.child import Supervisor


class Sleeper(Supervisor):
    """A child that starts once; then the system has no memory for another process."""

    name, resumes_from = "The sleeper", "its bed"
    starts = 0

    async def spawn(self, log: IO[bytes]) -> asyncio.subprocess.Process:
        """Starts it, the first time."""
        self.starts += 1
        if self.starts > 1:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return await asyncio.create_subprocess_exec("sleep", "600", stdout=log)

    async def answers(self) -> None:
        """It answers at once."""


def test_a_child_that_cannot_be_started_again_stops_the_service(tmp_path: Path) -> None:
    """Where memory is short, a child is killed, and a new process may be refused as well."""

    async def run() -> tuple[str, ...]:
        failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        said: list[str] = []
        child = Sleeper(tmp_path / "log", failed.set_result, said.append)
        await child.start()
        child.kill()
        return await asyncio.wait_for(failed, 60), *said

    assert asyncio.run(run()) == (
        "The sleeper cannot be started again (Cannot allocate memory), so the service stops.",
        "the sleeper died (-9); it restarts from its bed",
    )
