"""Asks a stage whether all is well: quotas, tables, functions, API, alarms, sinks, upstreams; mends what drifted."""
