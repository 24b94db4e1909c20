"""HTTP service for a trained model."""
