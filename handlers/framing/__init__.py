"""From bytes to frames to events, without input or output."""
