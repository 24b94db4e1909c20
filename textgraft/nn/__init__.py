"""Layers and what they are computed with: nothing here knows of texts, tasks or files."""

from textgraft.nn.denormals import start_workers

start_workers()  # before anything is computed: see there
