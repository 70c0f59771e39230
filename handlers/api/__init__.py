"""What the control API answers: status of a stream, pages of events and of streams."""
