"""Histories of executions, looked at by the command."""
