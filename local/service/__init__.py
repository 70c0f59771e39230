"""The service on a laptop: HTTP API, AWS endpoint, embedded AWS, live view."""
