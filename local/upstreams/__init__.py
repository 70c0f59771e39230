"""Demonstration streams on real sockets, which behave like real providers."""
