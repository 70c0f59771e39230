"""Seeded chaos in virtual time: the real manager, store and machine under generated faults."""
