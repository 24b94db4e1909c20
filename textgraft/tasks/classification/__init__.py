"""Classification and regression of texts, pairs and multiple choice."""
