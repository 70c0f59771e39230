"""The errors the connection manager raises: its contract with the state machine.

ErrorEquals compares class names, so a name here is public: renaming one changes every definition in `statemachines/`.
A message is one sentence for a person and never holds a secret; no code reads it, but for the name in RenewalDue's.
"""


class StreamkeeperError(Exception):
    """Any error that the connection manager raises by name."""


class StreamTakenOver(StreamkeeperError):
    """A newer connection holds the stream: this lane becomes the standby."""


class StreamDropped(StreamkeeperError):
    """The upstream closed early, reset, stalled, was truncated, answered 5xx or could not be reached.

    Or it refused the request, and not for long enough yet; or a secret of the profile cannot be read.
    """


class StreamThrottled(StreamkeeperError):
    """The upstream asked for fewer connections (429 or 420)."""


class ConnectionExpired(StreamkeeperError):
    """The function's deadline came and nobody has taken over."""


class RenewalDue(StreamkeeperError):
    """A cycle ended as usual and the execution is to start its successor, for its history will be full one day.

    It is raised in place of StreamTakenOver or ConnectionExpired. Its message begins with that name and a colon, and
    the machine reads which: only a lane that was taken over waits.
    """


class StreamRejected(StreamkeeperError):
    """The upstream has refused, and nobody was connected, for all of the profile's `reject_after`."""


class StreamBroken(StreamkeeperError):
    """What must not be requested twice ended without its end mark, or nobody knows how it ended."""


class StoreUnavailable(StreamkeeperError):
    """DynamoDB or the dead-letter queue still refuses after the client's own retries.

    `is_throttle` is whether it refuses for the number of requests alone. `is_unknown_layout` is whether what is stored
    cannot be read by this version: the message says what.
    """

    is_throttle = False
    is_unknown_layout = False


class InvalidRequest(StreamkeeperError):
    """No such profile, a bad profile or a malformed stream id."""
