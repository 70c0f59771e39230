"""A stream's log of segments, sans-I/O: how one is appended exactly once, and what is in it."""
