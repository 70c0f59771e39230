"""The verb `replay`: a machine against a scripted upstream in virtual time."""
