"""Tasks in plain files."""
