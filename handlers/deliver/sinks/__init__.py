"""The sinks, a module for each kind: a table of what it promises, and one function that sends a batch."""
