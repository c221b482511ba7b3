"""One module for each detector: `look(facts)` says what it found; rule, errors and source stand in its docstring."""
