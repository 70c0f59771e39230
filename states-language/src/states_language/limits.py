"""Bounds of data, and AWS's causes for what exceeds them."""

NESTED = "The data is nested too deeply."
HISTORY_FULL = "The execution reached the maximum number of history events (25000)."


LARGEST_BETWEEN = 16 * 262_144
"""The most characters of a value before it becomes a state's output. AWS documents no bound; this one saves memory."""
FEW = 64
"""So few parts, each within the payload limit, are not measured together."""


def too_large(what: str) -> str:
    """Return AWS's cause for data over the payload limit (recorded); `what` is a state's name or a resource."""
    return f"The state/task '{what}' returned a result with a size exceeding the maximum number of bytes service limit."
