"""Scheduling: executions take turns on the event loop, and costly evaluations run in processes of their own."""
