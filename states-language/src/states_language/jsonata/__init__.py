"""JSONata: compiling and evaluating expressions within bounds, as AWS does."""
