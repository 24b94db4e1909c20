"""CPU kernels and number formats: int8, bfloat16, denormals, LSTM inference."""
