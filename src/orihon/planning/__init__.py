"""Plans: one schema for what a model answers, what is stored and what the next run reads, and the history of it."""
