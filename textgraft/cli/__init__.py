"""The command line: one command for each verb, each a thin layer over the function of the same name."""

from textgraft.cli.app import main

__all__ = ["main"]
