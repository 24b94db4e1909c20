"""The command line: one command for each verb, each a thin layer over the function of the same name."""

import os

# Before torch is loaded: its threads wait for one another by spinning, and where other work wants the same cores that
# takes two thirds of the speed.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from textgraft.cli.app import main

__all__ = ["main"]
