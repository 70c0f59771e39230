"""Stores what belongs to a stream: events, lease, cursor, ledger, dead-letter messages, large bodies."""
