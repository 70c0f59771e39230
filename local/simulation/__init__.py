"""The virtual platform: what a function and a machine meet on AWS, in memory and in virtual time.

Replay, chaos, costs, compare and scale run on it. Faults, latencies and what is counted are parameters or thin wrappers
around one of each; nothing here knows which of them uses it.
"""
