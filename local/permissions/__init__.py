"""The permissions of the roles in serverless.yml, as the local service records and enforces them."""
