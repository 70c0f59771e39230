"""Backs up, restores and moves streams: their events, control records, gaps and large bodies."""
