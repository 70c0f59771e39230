"""Fetches what a gap has missed from the REST address of the stream's profile (docs/repair.md)."""
