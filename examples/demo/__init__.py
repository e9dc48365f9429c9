"""What `orihon demo` shows."""
