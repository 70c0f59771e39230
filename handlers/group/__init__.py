"""Many streams in one function: what a group's lease and its streams' records say together, and who is kept when."""

# No profile's name begins so, hence no stream is called so.
GROUP = "#"


def is_group(stream_id: str) -> bool:
    """Returns whether what an execution keeps connected is a group, by its id."""
    return stream_id.startswith(GROUP)
