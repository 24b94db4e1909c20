"""One folder per task, with its training, predictor, evaluation, report and estimator."""
