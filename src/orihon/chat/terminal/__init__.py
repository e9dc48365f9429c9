"""`orihon chat`: the session, its slash commands, and its user interfaces for a terminal and for pipes."""
