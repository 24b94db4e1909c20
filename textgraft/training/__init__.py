"""The training loop and what it is made of: phases, schedules, optimizers, recipes, checkpoints."""
