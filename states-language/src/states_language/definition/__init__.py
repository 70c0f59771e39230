"""Loads definitions, checks them, and lists every problem of one."""
