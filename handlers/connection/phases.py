"""The phases of a connection; which inputs are legal in which is `Manager._TABLE`'s.

    CLAIMING          the token is being raised                          → AWAITING_RELEASE, OPENING
    AWAITING_RELEASE  the upstream forbids two: the older is still open  → OPENING, DRAINING
    OPENING           the request is sent, no answer yet                 → CONNECTED, DRAINING
    CONNECTED         reading                                            → OVERLAPPING, DRAINING
    OVERLAPPING       taken over, reads on until `overlap_s` is over     → DRAINING, CONNECTED
    DRAINING          closed: what was read before is stored,          → FINISHED
                      then the lease says why it closed
    FINISHED          the outcome is known; nothing may follow

It decides and knows nothing else. Invariant: no phase is come back to, but CONNECTED where the newer connection is
closed again.
"""

import enum


class Phase(enum.Enum):
    """Where a connection is in its life; the value is the word used in logs."""

    CLAIMING = "claiming"
    AWAITING_RELEASE = "awaiting release"
    OPENING = "opening"
    CONNECTED = "connected"
    OVERLAPPING = "overlapping"
    DRAINING = "draining"
    FINISHED = "finished"


LIVE = frozenset({Phase.CONNECTED, Phase.OVERLAPPING})
HAS_ASKED = LIVE | {Phase.OPENING}


class ProtocolMisuse(RuntimeError):
    """An input came that the phase does not know: a defect of the performer, never of the upstream."""
