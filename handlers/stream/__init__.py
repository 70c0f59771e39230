"""What a stream is made of, without input or output: frames, events, profiles and the manager.

Nothing in this package knows a clock, a socket, a log, the environment or AWS.
"""
