"""Reads streams that Streamkeeper keeps, in Python: `from streamkeeper import Client`. docs/client.md shows how.

It imports nothing from the rest of the project, and only urllib3 besides; pyarrow and pandas only to make a table.
"""

from streamkeeper.api import Client
from streamkeeper.event import Event
from streamkeeper.exceptions import (
    InvalidRequest,
    NotAllowed,
    NotFound,
    Refused,
    StreamkeeperError,
    Throttled,
    Unavailable,
    Unreachable,
)
from streamkeeper.follower import Checkpoint, FileCheckpoint
from streamkeeper.once import Seen, once
from streamkeeper.replies import Gap, Started, Status, Stopped, StreamRow

__all__ = [
    "Checkpoint", "Client", "Event", "FileCheckpoint", "Gap", "InvalidRequest", "NotAllowed", "NotFound", "Refused",
    "Seen", "Started", "Status", "Stopped", "StreamRow", "StreamkeeperError", "Throttled", "Unavailable",
    "Unreachable", "once",
]  # fmt: skip
