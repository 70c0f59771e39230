"""The handover protocol's pure rules: who holds a stream, and what a connection learns by reading the lease."""
