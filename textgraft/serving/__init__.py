"""A fitted model behind HTTP."""
