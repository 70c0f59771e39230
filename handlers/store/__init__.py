"""What is stored of a stream: events, lease, cursor, ledger, dead-letter messages, large bodies."""
