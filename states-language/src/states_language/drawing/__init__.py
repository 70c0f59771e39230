"""Definitions as pictures."""
