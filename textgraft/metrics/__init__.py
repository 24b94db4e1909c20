"""Scores, calibration, intervals and paired tests."""
