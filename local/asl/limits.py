"""What AWS says when data is too large, or a history too long."""

NESTED = "The data is nested too deeply."
HISTORY_FULL = "The execution reached the maximum number of history events (25000)."


def too_large(what: str) -> str:
    """Return AWS's cause for data over the payload limit (recorded); `what` is a state's name or a resource."""
    return f"The state/task '{what}' returned a result with a size exceeding the maximum number of bytes service limit."
