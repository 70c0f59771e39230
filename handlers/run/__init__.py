"""Performs an invocation: the performer, its ports, and what the two kinds of functions add to it."""
