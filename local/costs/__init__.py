"""The verb `cost`: what a stream costs a month, computed from a replay and from the requests of a counted run."""
