"""Damaged files for every reader, as many as a time allows: each is read, or refused with a UserError.

    python research/fuzz.py --seconds 60
    python research/fuzz.py --target csv --target squad --seed 7 --keep finds

Everything else is a fault: another exception, a panic of a library, an answer 5xx of the HTTP service, a message that
cannot be printed or that is longer than a screen, a file that takes longer than SLOW seconds. Each is printed once, by
the place where it was raised, with its smallest file under --keep. The i-th file of a target depends only on --seed
and i. Each turn of a target is a fork, so that a library that ends the process is a fault like others; none is
started for a single file. Exits with 1 if anything was found.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz_targets import Target, targets, with_right_hashes
from mutations import damaged

from textgraft.core.errors import UserError

SLOW = 10
"""Seconds in which a file of a few kilobytes must be read."""
LONGEST_MESSAGE = 2000
"""Characters of a message that a user can take in."""
GIGABYTES = 12
"""Address space: a file that announces more than it has is a fault, not the end of the machine."""
TURN = 2.0
"""Seconds for which one target is tried before the next."""


class TooSlow(BaseException):
    """No reader converts this one to an error of its own."""


@dataclass
class Found:
    """A fault: where it was raised, and the smallest file that raises it."""

    trace: str
    name: str
    data: bytes
    number: int
    times: int = 1


@dataclass
class Outcome:
    """Counts of one target, and its faults by the place where they were raised."""

    inputs: int = 0
    read: int = 0
    refused: int = 0
    seconds: float = 0.0
    faults: dict[str, Found] = field(default_factory=dict)


def input_of(target: Target, name: str, seed: int, number: int) -> tuple[str, bytes]:
    """The file of a number: its name and content."""
    generator = random.Random(f"{seed} {name} {number}")
    file = generator.choice(list(target.files))
    return file, damaged(target.files[file], Path(file).suffix, generator)


def try_one(target: Target, place: Path, file: str, data: bytes) -> UserError | None:
    """Read one damaged file; returns the error that refused it. Raises whatever is a fault."""
    path = place / file
    if target.folder is not None:
        path.write_bytes(data)
        with_right_hashes(place)
    else:
        for other in place.iterdir():
            shutil.rmtree(other) if other.is_dir() else other.unlink()
        path.write_bytes(data)
    signal.setitimer(signal.ITIMER_REAL, SLOW)
    try:
        target.use(place if target.folder is not None else path)
    except UserError as error:
        message = str(error)
        message.encode()
        assert 0 < len(message) < LONGEST_MESSAGE, f"a message of {len(message)} characters: {message[:80]}"
        return error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if target.folder is not None:
            for name in (file, *(name for name in target.files if name.endswith("config.json"))):
                (place / name).write_bytes(target.files[name])
    return None


def signature(error: BaseException) -> str:
    """The type of a fault and the last lines of textgraft, and of this script, that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "textgraft/" in frame.filename] or frames
    places = [f"{frame.filename.rpartition('textgraft/')[2]}:{frame.lineno}" for frame in ours[-2:]]
    return f"{type(error).__name__} at {' < '.join(reversed(places))}"


def run(target: Target, name: str, place: Path, outcome: Outcome, seed: int, until: float, most: int) -> None:
    """Try files until a moment or a number of them, in a process of its own."""
    started, counter, (reader, writer) = time.monotonic(), mmap.mmap(-1, 8), os.pipe()
    process = os.fork()
    if process == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries print their panics
        try:
            turn(target, name, place, outcome, (seed, until, most), counter)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(outcome, pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        sent = pipe.read()
    _, status = os.waitpid(process, 0)
    if sent:
        vars(outcome).update(vars(pickle.loads(sent)))
    else:
        number = int.from_bytes(counter[:], "little")
        file, data = input_of(target, name, seed, number)
        trace = f"the process was ended by {signal.Signals(os.WTERMSIG(status)).name}"
        add(outcome, Found(trace, file, data, number), trace)
        outcome.inputs = number + 1
    outcome.seconds += time.monotonic() - started


def turn(
    target: Target, name: str, place: Path, outcome: Outcome, limits: tuple[int, float, int], counter: mmap.mmap
) -> None:
    """Try files until a moment or a number of them; `counter` has the number of the last."""
    seed, until, most = limits
    while time.monotonic() < until and outcome.inputs < most:
        number = outcome.inputs
        counter[:] = number.to_bytes(8, "little")
        file, data = input_of(target, name, seed, number)
        outcome.inputs += 1
        try:
            refused = try_one(target, place, file, data)
            outcome.read, outcome.refused = outcome.read + (refused is None), outcome.refused + (refused is not None)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            trace = "".join(traceback.format_exception(error)[-12:])
            add(outcome, Found(trace, file, data, number), signature(error))


def add(outcome: Outcome, fault: Found, key: str) -> None:
    """Count a fault, and keep the smallest file of each."""
    known = outcome.faults.get(key)
    fault.times = 1 if known is None else known.times + 1
    if known is not None:
        known.times += 1
    if known is None or len(fault.data) < len(known.data):
        outcome.faults[key] = fault


def _too_slow(*_: Any) -> None:
    raise TooSlow(f"longer than {SLOW} seconds")


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: files are written thousands of times a second."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def places_of(chosen: dict[str, Target], folder: Path) -> dict[str, Path]:
    """A folder for each target, with the sound model in it if it is one of a folder."""
    places = {}
    for name, target in chosen.items():
        places[name] = folder / "at" / name.replace(" ", "-")
        if target.folder is None:
            places[name].mkdir(parents=True)
        else:
            shutil.copytree(target.folder, places[name])
    return places


def keep(outcomes: dict[str, Outcome], folder: Path) -> None:
    """Write each fault's file and trace."""
    for target, outcome in outcomes.items():
        for number, fault in enumerate(outcome.faults.values()):
            place = folder / f"{target.replace(' ', '-')}-{number}"
            place.mkdir(parents=True, exist_ok=True)
            (place / Path(fault.name).name).write_bytes(fault.data)
            (place / "trace.txt").write_text(f"{fault.name}, number {fault.number}\n{fault.trace}", errors="replace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=60.0, help="time for all targets together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=10**9, help="inputs for each target")
    parser.add_argument("--target", action="append", default=[], help="a part of the names of targets; repeat")
    parser.add_argument("--keep", type=Path, help="folder for the files that were found")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES << 30, GIGABYTES << 30))
    signal.signal(signal.SIGALRM, _too_slow)
    with scratch() as folder:
        chosen = {
            name: target
            for name, target in targets(folder / "sound")
            if not options.target or any(part in name for part in options.target)
        }
        places, outcomes = places_of(chosen, folder), {name: Outcome() for name in chosen}
        end, turn = time.monotonic() + options.seconds, min(TURN, max(0.2, options.seconds / max(1, len(chosen))))
        while time.monotonic() < end and any(outcome.inputs < options.most for outcome in outcomes.values()):
            for name, target in chosen.items():
                until = min(end, time.monotonic() + turn)
                run(target, name, places[name], outcomes[name], options.seed, until, options.most)
    if options.keep is not None:
        keep(outcomes, options.keep)
    faults = sum(len(outcome.faults) for outcome in outcomes.values())
    if options.json:
        counts = {
            n: {"inputs": o.inputs, "read": o.read, "refused": o.refused, "faults": list(o.faults)}
            for n, o in outcomes.items()
        }
        print(json.dumps({"inputs": sum(o.inputs for o in outcomes.values()), "faults": faults, "targets": counts}))
    else:
        show(outcomes)
    sys.exit(int(faults > 0))


def show(outcomes: dict[str, Outcome]) -> None:
    """Print a line for each target, and each fault."""
    for name, o in outcomes.items():
        counts = f"{o.inputs:9,} inputs  {o.read:9,} read  {o.refused:9,} refused  {len(o.faults):3} faults"
        print(f"{name:24} {counts}  {o.inputs / max(o.seconds, 1e-9):7,.0f}/s")
    for name, o in outcomes.items():
        for key, fault in o.faults.items():
            print(f"\n{name}, {fault.times}×: {key}\n  {fault.name}, number {fault.number}: {fault.data[:160]!r}")
            print("  " + fault.trace.strip().splitlines()[-1][:300])
    inputs, faults = (sum(counts) for counts in zip(*((o.inputs, len(o.faults)) for o in outcomes.values())))
    print(f"\n{inputs:,} inputs, {faults} faults")


if __name__ == "__main__":
    main()
