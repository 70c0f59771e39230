"""An upgrade of the streams to another version of the function: its waves and its verdicts, sans-I/O."""
