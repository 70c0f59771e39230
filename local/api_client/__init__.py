"""Calls the HTTP API of a stage, deployed or of the run on this machine, and signs where it must."""
