"""Defines the errors that the connection manager raises: its contract with the state machine.

ErrorEquals compares class names, so a name here is public: renaming one changes every definition in `statemachines/`. A
message is one sentence for a person and never holds a secret. Code reads one message only: the name that begins
RenewalDue's.
"""


class StreamkeeperError(Exception):
    """Any error that the connection manager raises by name."""


class StreamTakenOver(StreamkeeperError):
    """A newer connection holds the stream: this lane becomes the standby."""


class StreamDropped(StreamkeeperError):
    """The upstream closed early, reset, stalled, was truncated, answered 5xx or could not be reached.

    It is also raised if the upstream refused the request and `reject_after` has not passed yet, or if a secret of the
    profile cannot be read.
    """


class StreamThrottled(StreamkeeperError):
    """The upstream refused because of too many requests (429 or 420)."""


class ConnectionExpired(StreamkeeperError):
    """The function's deadline came before another connection had taken over."""


class RenewalDue(StreamkeeperError):
    """A cycle ended as usual, and the execution starts its successor now, because its history is limited in length.

    It replaces StreamTakenOver or ConnectionExpired. Its message begins with the name of the replaced error and a
    colon. The machine reads that name, because only a lane that was taken over waits.
    """


class StreamRejected(StreamkeeperError):
    """The upstream has refused for all of the profile's `reject_after`, and no connection was open in that time."""


class StreamBroken(StreamkeeperError):
    """A stream that must not be requested twice ended without its end mark, or its end is unknown."""


class StoreUnavailable(StreamkeeperError):
    """DynamoDB or another service still refuses after the client's own retries; `service` names it in an answer.

    `is_throttle` is whether the service refuses only because of too many requests. `is_unknown_layout` is whether this
    version cannot read a stored record, which the message names.
    """

    service = "the table"
    is_throttle = False
    is_unknown_layout = False


class InvalidRequest(StreamkeeperError):
    """The profile does not exist or is wrong, or the stream id is malformed."""
