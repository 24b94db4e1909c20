"""Translation, from which CoVe's encoder is learned."""
