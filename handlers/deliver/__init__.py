"""Sends stored events on: from the stream of the events table to the sinks that a profile names."""
