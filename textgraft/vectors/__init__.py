"""Static word vectors: their files, training, neighbours, analogies and evaluation."""
