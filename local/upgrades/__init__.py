"""The verb `upgrade`."""
