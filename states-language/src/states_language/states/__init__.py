"""One module a state type; `states_language.definition.load` chooses among them."""
