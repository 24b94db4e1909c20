"""Tagging words: parts of speech and named entities."""
