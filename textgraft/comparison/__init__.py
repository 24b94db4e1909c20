"""Learning curves of several methods on the user's own data."""
