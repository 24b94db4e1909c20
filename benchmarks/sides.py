"""The sides of a comparison: a process each that waits for commands, and the environments of the peers."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENVIRONMENTS = HERE / ".venv"


class Side:
    """A process that answers one command at a time (`timing.serve`) and sleeps in between."""

    def __init__(self, command: list[str], threads: int) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, command: str, **arguments: Any) -> Any:
        """The answer to `command`; SystemExit where the process has died (it has said why on stderr)."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": command, **arguments}) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            sys.exit(f"{' '.join(self._process.args)} ended during '{command}'.")  # type: ignore[arg-type]
        return json.loads(answer)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def peers_python(peer: str) -> Path:
    """The interpreter of a peer's environment, made on first use and again when its requirements change."""
    environment = ENVIRONMENTS / peer
    requirements = HERE / "peers" / f"{peer}.txt"
    python = environment / "bin" / "python"
    stamp, wanted = environment / "installed.txt", requirements.read_text("utf-8")
    if stamp.exists() and stamp.read_text("utf-8") == wanted:
        return python
    print(f"installing {peer} into {environment}", file=sys.stderr)
    venv.create(environment, clear=True)
    own = next(environment.glob("lib/python*/site-packages"))
    # After its own packages the peer's environment sees those of the project: one torch for both sides.
    (own / "project.pth").write_text("\n".join(site.getsitepackages()) + "\n", "utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "-r", str(requirements)], check=True)
    stamp.write_text(wanted, "utf-8")
    return python


def packages(peer: str) -> Path:
    """Where a peer's packages lie, for what is read and not run."""
    return next(peers_python(peer).parents[1].glob("lib/python*/site-packages"))
