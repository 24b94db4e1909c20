"""Pretraining a language model and adapting it to a domain."""
