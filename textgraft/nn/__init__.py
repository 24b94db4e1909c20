"""Layers that encoders and heads are made of."""
