"""The cost of streams."""
