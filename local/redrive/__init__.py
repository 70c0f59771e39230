"""Puts dead-letter messages back: events into the table, rejected streams to work."""
