"""Small models trained on the outputs of large ones."""
