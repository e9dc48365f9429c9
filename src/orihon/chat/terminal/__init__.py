"""`orihon chat`: the terminal of a conversation. What is typed is said, or is a command; all of it is in the log."""
