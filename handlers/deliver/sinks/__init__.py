"""The sinks. Each kind has a module: a table of what it promises, and one function that sends a batch."""
