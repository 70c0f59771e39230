"""Many streams in one function: what a group's lease and its streams' records say together, and who is kept when."""
