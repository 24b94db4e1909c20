"""One file per family of language model."""
