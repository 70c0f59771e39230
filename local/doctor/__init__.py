"""Checks a stage: quotas, tables, functions, API, alarms, sinks, upstreams; and mends what has drifted."""
