"""Leaf layers that encoders and heads are made of."""
