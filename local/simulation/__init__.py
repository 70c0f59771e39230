"""The virtual platform: AWS as a function and a machine see it, in memory and in virtual time.

Replay, chaos, costs, compare and scale run on it. Faults, latencies and counters are parameters or thin wrappers, so
there is one simulation of each part; nothing here knows which of the five uses it.
"""
