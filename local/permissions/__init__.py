"""The permissions of the roles in serverless.yml, which the local service records and enforces."""
