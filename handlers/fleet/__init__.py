"""Starts and stops streams, at a bounded rate, until those are connected that a document names."""
