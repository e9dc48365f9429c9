"""The two command names of the seeds, kept as aliases: `context_viewer` and `context_stats`."""
