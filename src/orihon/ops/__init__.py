"""Care of a store: look, mend, copy. A library; the commands parse, call and print."""
