"""The command reads histories of executions."""
