"""Compares ways to keep a stream connected: the same upstream, faults and connection manager, in virtual time."""
