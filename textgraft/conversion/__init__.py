"""Conversion of other libraries' checkpoints, and downloads."""
