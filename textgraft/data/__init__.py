"""Data sets as plain values: readers, labels, checks, splits, batches."""
