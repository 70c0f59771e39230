"""The Step Functions API on this machine: its actions and what they keep."""
