"""Linear (bag-of-words) classifiers: TF-IDF, LSA, paragraph vectors, co-training."""
