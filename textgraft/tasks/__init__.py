"""Tasks: a folder each, with training, predictor, evaluation, report and estimator."""
