"""One run of an agent on one thing: where stores meet context."""
