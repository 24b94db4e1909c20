"""Generation, scoring and prompting with a language model, without training."""
