"""A person at the keyboard: conversations, side conversations, checkpoints, sticky files."""
