"""An upgrade of the streams to another version of the function: in which waves, and what is worse, sans-I/O."""
