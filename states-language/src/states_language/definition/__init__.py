"""Definitions: loading, checking, and naming everything that is wrong with one."""
