"""The verbs that work on streams over the HTTP API: start, stop, status, list, events, follow and gaps."""
