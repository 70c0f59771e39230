"""Performs an invocation: the performer, its ports, and what a stream's and a group's function add to it."""
