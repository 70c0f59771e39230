"""The state types, one or more in a module; `states_language.definition.load` chooses among them."""
