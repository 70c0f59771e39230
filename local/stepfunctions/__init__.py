"""The Step Functions API on this machine: its actions, and the machines, executions and activities behind them."""
