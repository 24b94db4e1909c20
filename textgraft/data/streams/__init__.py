"""Training streams: batches in a fixed order that can be entered at any batch."""
