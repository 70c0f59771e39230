"""What AWS says when data is too large, or a history too long."""

NESTED = "The data is nested too deeply."
HISTORY_FULL = "The execution reached the maximum number of history events (25000)."


LARGEST_BETWEEN = 16 * 262_144
"""Characters that a value may take on its way to a state's output, where AWS tells no bound; ours is for memory."""
FEW = 64
"""So many parts, each within the payload limit, are never too large to be looked at whole."""


def too_large(what: str) -> str:
    """Return AWS's cause for data over the payload limit (recorded); `what` is a state's name or a resource."""
    return f"The state/task '{what}' returned a result with a size exceeding the maximum number of bytes service limit."
