"""Backs streams up, restores them and moves them: their events, control records, gaps and large bodies."""
