"""The command line: one command per verb, each a thin layer over the function of the same name."""

import os

# Set before torch is loaded: its threads spin while they wait, which costs two thirds of the speed where other
# processes use the same cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from textgraft.cli.app import main

__all__ = ["main"]
