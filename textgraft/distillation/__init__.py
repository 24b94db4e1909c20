"""Knowledge distillation: small models trained on the outputs of large ones."""
