"""Many streams in one function: what the group's lease and the streams' records mean together, and which streams the
function keeps when.
"""

# No profile's name begins with this, so no stream has such an id.
GROUP = "#"


def is_group(stream_id: str) -> bool:
    """Returns whether an execution with this id keeps a group connected, rather than a stream."""
    return stream_id.startswith(GROUP)
