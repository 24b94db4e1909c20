"""Checkpoints that are no longer published: ELMo, Flair, TensorFlow, Transformer-XL."""
