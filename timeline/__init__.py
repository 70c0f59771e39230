"""Reads lanes, spans and coverage from an execution's history and from the record of its connections."""
