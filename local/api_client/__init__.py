"""Calls the HTTP API of a deployed stage or of the run on this machine, and signs requests if necessary."""
