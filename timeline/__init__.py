"""Lanes, spans and coverage, read from an execution's history and from the record of its connections."""
