"""Static word vectors and contextual vectors of words, alone or stacked."""
