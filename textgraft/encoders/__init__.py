"""Encoders, one file for each family of language models."""
