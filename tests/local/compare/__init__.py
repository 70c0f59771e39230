"""Strategies beside each other."""
