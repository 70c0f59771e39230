"""What a Task asks of the outside, and how the outside answers."""
