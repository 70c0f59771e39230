"""All that ships to Lambda: the connection manager and what it is made of."""
