"""Conversations with a user at the keyboard: tangents, checkpoints, sticky files, and the chat at a terminal."""
