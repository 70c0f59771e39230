"""Virtual time jumps, repeats itself and never hangs; real time never wakes anyone early."""

import asyncio
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machines import machine
from states_language.clock import EPOCH_2026_MS, Deadlock, RealClock, VirtualClock, calculated_s


@given(st.integers(0, 10**11), st.integers(1, 10**7))
def test_asyncio_sleeps_end_at_the_very_millisecond(before_ms: int, sleep_ms: int) -> None:
    """Dividing by 1000 and back costs no millisecond, even after three years."""
    clock = VirtualClock()

    async def main() -> int:
        await clock.sleep_until(EPOCH_2026_MS + before_ms)
        await asyncio.sleep(sleep_ms / 1000)
        return clock.now_ms()

    assert clock.run(main()) == EPOCH_2026_MS + before_ms + sleep_ms


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_sleepers_wake_in_order_of_time_and_then_of_going_to_sleep(sleeps_ms: list[int]) -> None:
    """Ties are broken the same way every time."""
    clock = VirtualClock()
    woken: list[int] = []

    async def sleeper(index: int, sleep_ms: int) -> None:
        await clock.sleep_until(EPOCH_2026_MS + sleep_ms)
        woken.append(index)

    async def main() -> None:
        await asyncio.gather(*(sleeper(index, sleep_ms) for index, sleep_ms in enumerate(sleeps_ms)))

    clock.run(main())
    assert woken == sorted(range(len(sleeps_ms)), key=lambda index: (sleeps_ms[index], index))


def test_a_cancelled_timer_is_not_called_and_does_not_move_time() -> None:
    clock = VirtualClock()
    called: list[int] = []

    async def main() -> int:
        clock.call_at(EPOCH_2026_MS + 10, lambda: called.append(clock.now_ms()))
        clock.call_at(EPOCH_2026_MS + 20, lambda: called.append(-1)).cancel()
        await clock.sleep_until(EPOCH_2026_MS + 30)
        return clock.now_ms()

    assert (clock.run(main()), called) == (EPOCH_2026_MS + 30, [EPOCH_2026_MS + 10])


def test_the_timers_of_what_has_ended_do_not_pile_up() -> None:
    """Each execution would time out after a year; of two thousand that have ended, most timers are gone."""
    clock, ends = VirtualClock(), machine(("S", {"Type": "Succeed"}))
    for _ in range(2000):
        ends.execute(clock=clock)
    assert len(clock._loop._timers) <= 1000


def test_waiting_for_what_can_never_come_is_an_error_that_names_the_clock() -> None:
    """With nothing ready and no timer it is an error instead of a hang, with the seed to repeat it."""
    clock = VirtualClock(seed=7)

    async def main() -> None:
        await clock.sleep_until(clock.now_ms() + 5)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match=r"no timer is set at 5 ms of VirtualClock\(start_ms=1767225600000, seed=7\)"):
        clock.run(main())


def test_a_second_run_goes_on_where_the_first_stood_still() -> None:
    """Other tasks pause between the runs and lose nothing."""
    clock = VirtualClock()
    ticks: list[int] = []

    async def ticking() -> None:
        while True:
            ticks.append(clock.now_ms() - EPOCH_2026_MS)
            await asyncio.sleep(1)

    async def begin() -> "asyncio.Task[None]":
        task = asyncio.create_task(ticking())
        await asyncio.sleep(1.5)
        return task

    task = clock.run(begin())
    assert ticks == [0, 1000]
    clock.run(clock.sleep_until(EPOCH_2026_MS + 2500))
    assert ticks == [0, 1000, 2000]
    assert not task.done()


def test_what_a_callback_raises_ends_the_run() -> None:
    """No exception is only logged."""
    clock = VirtualClock()

    def broken() -> None:
        raise LookupError("broken")

    async def main() -> None:
        clock.call_at(clock.now_ms() + 1, broken)
        await clock.sleep_until(clock.now_ms() + 2)

    with pytest.raises(LookupError, match="broken"):
        clock.run(main())


def test_real_time_wakes_nobody_early() -> None:
    clock = RealClock()

    async def main() -> tuple[int, int]:
        fired = asyncio.Event()
        at_ms = clock.now_ms() + 20
        clock.call_at(at_ms, fired.set)
        await clock.sleep_until(at_ms)
        await fired.wait()
        return at_ms, clock.now_ms()

    at_ms, woken_ms = asyncio.run(main())
    assert woken_ms >= at_ms
    assert 0 <= clock.random() < 1
    before_ms = time.time_ns() // 1_000_000
    assert before_ms - 1 <= clock.now_ms() <= time.time_ns() // 1_000_000 + 1


def test_the_time_that_a_process_has_calculated() -> None:
    """It is this process's own, and 0 for one that does not exist."""
    assert time.process_time() <= calculated_s(os.getpid()) <= time.process_time()
    assert calculated_s(2**22 + 1) == 0
