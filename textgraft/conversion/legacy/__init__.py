"""Readers of checkpoints that are no longer published: ELMo, Flair, TensorFlow, Transformer-XL."""
