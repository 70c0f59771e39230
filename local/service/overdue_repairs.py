"""Starts the function that repairs gaps for overdue repairs, as the deployed watch does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from handlers.errors import StoreUnavailable
from handlers.repair.work import RepairWork, start_due
from states_language.clock import RealClock

CHECK_EVERY_S = 5.0


async def run(work: Callable[[], RepairWork], invoke: Callable[[str], Awaitable[Any]]) -> None:
    """Checks every few seconds, until it is cancelled; `invoke` runs the function for a stream and its profile."""
    running: dict[str, asyncio.Task[Any]] = {}

    async def repair(stream_id: str) -> None:
        await invoke(stream_id)

    while True:
        await asyncio.sleep(CHECK_EVERY_S)
        try:
            due = await asyncio.to_thread(lambda: start_due(work(), RealClock().now_ms(), lambda _: True))
        except StoreUnavailable:
            continue  # The embedded database may be restarting; the next check is seconds away.
        for stream_id in due:
            profile = stream_id.partition(":")[0]
            if profile not in running or running[profile].done():
                running[profile] = asyncio.create_task(repair(stream_id))
