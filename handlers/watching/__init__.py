"""Finds which streams are not connected, tells people, and starts orphaned streams again."""
