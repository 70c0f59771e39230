"""What the functions ask of AWS besides DynamoDB: clients, secrets, and what an error of AWS means."""
