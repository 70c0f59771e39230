"""Compiles and evaluates JSONata expressions within bounds, as AWS does."""
