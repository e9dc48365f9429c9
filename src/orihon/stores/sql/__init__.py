"""The SQL of the stores, one file per subject."""
