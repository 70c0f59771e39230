"""Benchmarks: each measures the product and its peer in one run and prints the figures."""
