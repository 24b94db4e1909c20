"""Kernels and number formats for processors: int8, bfloat16, denormals, LSTM inference."""
