"""The metrics of the local run, for Prometheus and OpenTelemetry."""
