"""What stands in for AWS and the upstream in virtual time: a table, a scripted upstream, a sandbox."""
