"""Benchmarks: each measures the product beside its peer in one run and prints the figures."""
