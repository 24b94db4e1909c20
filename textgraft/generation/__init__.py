"""Generation, scoring and prompting with a pretrained language model, without training."""
