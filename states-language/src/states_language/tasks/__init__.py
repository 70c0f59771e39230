"""The calls of Tasks: their form, their resources, and what performs them."""
