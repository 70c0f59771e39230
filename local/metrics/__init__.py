"""The metrics of the local run: collected once, told as Prometheus text and to OpenTelemetry."""
