"""Finds streams that are not connected, alerts people, and starts orphaned streams again."""
