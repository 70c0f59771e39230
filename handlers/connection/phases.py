"""Names the phases of a connection, and which may follow which.

phase             what happens                                  next phase
CLAIMING          the claim is granted                          OPENING, or AWAITING_RELEASE if two are forbidden
                  the claim is refused                          FINISHED
AWAITING_RELEASE  the turn is this connection's                 OPENING
                  a stop, a newer claim, the deadline           DRAINING
OPENING           the upstream answers with a stream            CONNECTED, once its first messages are answered
                  it refuses the cursor, another is connected   OPENING, without a cursor
                  another answer, a close, a stop, the deadline DRAINING
CONNECTED         a newer connection is connected               OVERLAPPING
                  a close, a stop, an end, the deadline         DRAINING
OVERLAPPING       the newer connection is closed again          CONNECTED
                  the overlap is over, and it is not            DRAINING
                  any of those of CONNECTED                     DRAINING
DRAINING          all is stored and the lease explains the end  FINISHED
                  no time is left                               FINISHED
any               the store refuses                             FINISHED
"""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    """Where a connection is in its life. The value is for logs."""

    CLAIMING = "claiming"
    AWAITING_RELEASE = "awaiting release"  # the upstream forbids two, and the older is still open
    OPENING = "opening"  # the request is sent, no answer yet
    CONNECTED = "connected"
    OVERLAPPING = "overlapping"  # taken over; it reads on until `overlap_s` is over
    DRAINING = "draining"  # closed: what was read is stored, then the lease says why it closed
    FINISHED = "finished"


ANY = frozenset(Phase)
LIVE = frozenset({Phase.CONNECTED, Phase.OVERLAPPING})
# In these phases the request was sent, so there is an upstream to close.
HAS_ASKED = LIVE | {Phase.OPENING}
ENDS = frozenset({Phase.DRAINING, Phase.FINISHED})
# The last column of the table above.
NEXT = {
    Phase.CLAIMING: ENDS | {Phase.AWAITING_RELEASE, Phase.OPENING},
    Phase.AWAITING_RELEASE: ENDS | {Phase.OPENING},
    Phase.OPENING: ENDS | {Phase.CONNECTED},
    Phase.CONNECTED: ENDS | {Phase.OVERLAPPING},
    Phase.OVERLAPPING: ENDS | {Phase.CONNECTED},
    Phase.DRAINING: frozenset({Phase.FINISHED}),
    Phase.FINISHED: frozenset[Phase](),
}


class ProtocolMisuse(RuntimeError):
    """An input that is illegal in the phase, or a phase that may not follow: our defect, never the upstream's."""
