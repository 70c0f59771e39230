"""Which streams should be connected, by a document; the service starts and stops them itself, paced."""
