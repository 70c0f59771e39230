"""The phases of a connection; which inputs are legal in which is `Manager._TABLE`'s.

    CLAIMING          the fence is being raised                          → AWAITING_RELEASE, OPENING
    AWAITING_RELEASE  the upstream forbids two: the older is still open  → OPENING, SETTLING
    OPENING           the request is sent, no answer yet                 → CONNECTED, SETTLING
    CONNECTED         reading                                            → OVERLAPPING, SETTLING
    OVERLAPPING       taken over, reads on until `overlap_s` is over     → SETTLING
    SETTLING          closing: what was read before is drained and       → FINISHED
                      stored, then the lease says why it closed
    FINISHED          the outcome is known; nothing may follow

It decides and knows nothing else. Invariant: no phase is come back to.
"""

import enum


class Phase(enum.Enum):
    """Where a connection is in its life; the value is the word used in logs."""

    CLAIMING = "claiming"
    AWAITING_RELEASE = "awaiting release"
    OPENING = "opening"
    CONNECTED = "connected"
    OVERLAPPING = "overlapping"
    SETTLING = "settling"
    FINISHED = "finished"


LIVE = frozenset({Phase.CONNECTED, Phase.OVERLAPPING})
HAS_ASKED = LIVE | {Phase.OPENING}


class ProtocolMisuse(RuntimeError):
    """The driver gave an input that the phase does not know: a defect of the driver, never of the upstream."""
