"""What a training loop iterates over: batches in a fixed order that can be entered anywhere."""
