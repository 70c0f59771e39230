"""A stream's log of segments, sans-I/O: how events are appended exactly once, and what a segment contains."""
