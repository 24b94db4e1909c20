"""Static word vectors and contextual word vectors, alone or stacked."""
