"""Classifiers that count: n-grams, latent spaces, word and paragraph vectors, and what they teach each other."""
