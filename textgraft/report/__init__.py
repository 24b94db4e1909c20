"""The parts that HTML reports are made of."""
