"""Performs Tasks on this machine: Lambda functions in sandboxes, other services through botocore."""
