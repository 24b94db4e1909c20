"""What a language model does as it is, untrained for any task: it writes, scores texts and answers prompts."""
