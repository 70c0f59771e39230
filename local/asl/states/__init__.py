"""One module a state type; `local.asl.definition` chooses among them."""
