"""A small DynamoDB client: signing, sending, retrying."""
