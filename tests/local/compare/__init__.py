"""Strategies are compared."""
