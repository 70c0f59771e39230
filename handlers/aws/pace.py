"""Spaces requests by a token bucket, as AWS counts them: some at once, and then so many a second."""

from collections.abc import Callable


class Pace:
    """A bucket that is full at first; `monotonic` is a clock in seconds, `sleep` waits for seconds."""

    def __init__(
        self, at_once: int, a_second: float, monotonic: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._at_once, self._a_second = at_once, a_second
        self._monotonic, self._sleep = monotonic, sleep
        self._tokens, self._at_s = float(at_once), monotonic()

    def take(self) -> None:
        """Returns when a request may be sent."""
        now_s = self._monotonic()
        self._tokens = min(self._at_once, self._tokens + (now_s - self._at_s) * self._a_second)
        self._at_s = now_s
        self._tokens -= 1
        if self._tokens < 0:
            self._sleep(-self._tokens / self._a_second)
