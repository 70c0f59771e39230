"""The description of the HTTP API: OpenAPI 3.1, made of the constants that the API itself checks requests by."""
