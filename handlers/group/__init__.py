"""Many streams in one function: what a group's lease and its streams' records say together, and which are kept when."""

# No profile's name begins with it, so no stream has such an id.
GROUP = "#"


def is_group(stream_id: str) -> bool:
    """Returns whether what an execution keeps connected is a group, by its id."""
    return stream_id.startswith(GROUP)
