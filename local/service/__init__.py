"""The service on a laptop: gateway, AWS endpoint, embedded database, live view."""
