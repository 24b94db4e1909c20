"""Classifiers that count: n-grams, latent spaces, word vectors from co-occurrence, and what they teach each other."""
