"""Training loop, phases, schedules, optimizers, recipes and checkpoints."""
