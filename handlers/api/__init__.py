"""The bodies of the control API's answers: a stream's status, pages of events and of streams."""
