"""`python -m textgraft` is `textgraft`."""

import signal

from textgraft.cli import main

try:
    main()
finally:
    # Another Ctrl-C would kill the interpreter while it ends, whatever the exit code was to be.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
