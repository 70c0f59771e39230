"""One connection, without input or output: phases, decisions, lifetime, the rules of the lease, back-off."""
