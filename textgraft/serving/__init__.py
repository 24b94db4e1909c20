"""A finished model behind HTTP: answers to programs as JSON, and a page for people."""
