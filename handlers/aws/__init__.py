"""AWS besides DynamoDB's requests: clients, secrets, and the translation of errors."""
