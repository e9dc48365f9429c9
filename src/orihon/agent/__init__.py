"""The agent: the loop that runs a task with a model and tools, and what it needs around it."""
