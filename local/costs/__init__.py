"""The verb `cost`: what a stream costs a month, from what a replay did and what a counted run requested."""
