"""`python -m textgraft` is `textgraft`."""

from textgraft.cli import main

main()
