"""The calls of Tasks: their shape, their resources, and what performs them."""
