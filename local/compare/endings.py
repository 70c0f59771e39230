"""Says how long a lane rests after an ending of the connection manager, for the handlers that choose that themselves.

It is what the deployed machine does, in short. Invariant: a lane waits only where another is connected; after any other
ending it tries again, soon and then less often.
"""

MOST_S = 20
AT_ONCE = frozenset({"ConnectionExpired", "Sandbox.Timedout", "Runtime.ExitError"})
FINAL = frozenset({"StreamRejected", "InvalidRequest"})


def rest_s(error: str | None, failures: int, wait_s: int) -> int | None:
    """Returns for how many seconds to rest, None where trying again is of no use; `failures` came in succession."""
    if error in FINAL:
        return None
    if error == "StreamTakenOver":
        return wait_s
    return 0 if error in AT_ONCE and failures <= 1 else min(MOST_S, 2 ** min(failures - 1, 10))
