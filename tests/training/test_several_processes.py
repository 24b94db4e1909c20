"""A training on several processes is the training on one: same batches, same losses, same weights, same checkpoints."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import several_processes
import torch
import torch.distributed as dist

from textgraft import UserError
from textgraft.core import processes
from textgraft.core.launched import launched
from textgraft.core.processes import Processes, is_lost, packed, unpacked
from textgraft.data.batch import Batch, pad
from textgraft.data.sequences import Rows
from textgraft.data.streams.shards import Corpus, build_corpus
from textgraft.text.tokenizer import Tokenizer
from textgraft.training.engines import Single, nothing
from textgraft.training.loop import Run
from textgraft.training.phases import Phase, Stage
from textgraft.training.settings import Settings

PROGRAM = Path(several_processes.__file__)
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
ROOT = Path(__file__).parents[2]


def command(size: int, *arguments: str | Path, restarts: int = 0) -> list[str]:
    python = [sys.executable]
    if size > 1:
        python += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
        python += [f"--max-restarts={restarts}"]
    return [*python, str(PROGRAM), *map(str, arguments)]


def trained(size: int, out: Path, scenario: str, *options: str) -> dict[str, Any]:
    """The result of a training on processes that are started as torchrun starts them, without its own process.

    They meet in a store of this process, as in torchrun's, so no port can be taken by another test meanwhile.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    arguments = command(1, scenario, out, *options)
    logs = [out.with_name(f"{out.name} {rank}.log") for rank in range(size)]
    running = []
    for rank, log in enumerate(logs):
        place = {**address, "WORLD_SIZE": str(size), "RANK": str(rank), "LOCAL_RANK": str(rank)}
        with log.open("wb") as file:
            running.append(subprocess.Popen(arguments, env=ENVIRONMENT | place, stdout=file, stderr=file))
    try:
        codes = [process.wait(timeout=600) for process in running]
    finally:
        for process in running:
            process.kill()
    assert not any(codes), (codes, *(log.read_text(errors="replace")[-3000:] for log in logs))
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    return result


def assert_same(one: dict[str, Any], other: dict[str, Any], *, rtol: float = 1e-6) -> None:
    losses, others = (np.array([loss for *_, loss in each["losses"]]) for each in (one, other))
    np.testing.assert_allclose(others, losses, rtol=rtol, atol=rtol)
    assert [row[:2] for row in one["losses"]] == [row[:2] for row in other["losses"]]
    assert other["final"]["loss"] == pytest.approx(one["final"]["loss"], rel=1e-5)
    assert other["tokens"] == one["tokens"]
    assert_same_scores(one["history"], other["history"])


def assert_same_scores(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """Validations are divided over the processes."""
    assert [row.keys() for row in other] == [row.keys() for row in one]
    for row, reference in zip(other, one, strict=True):
        numbers, names = (
            {name: value for name, value in row.items() if isinstance(value, float)},
            {name: value for name, value in row.items() if not isinstance(value, float)},
        )
        assert names == {name: reference[name] for name in names}
        assert numbers == pytest.approx({name: reference[name] for name in numbers}, rel=1e-4, abs=1e-6)


def rows_of(batch: Batch) -> list[list[int]]:
    return [ids[mask].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
def test_shares_of_a_batch_are_all_of_it_once(size: int) -> None:
    batch = pad([np.arange(3, 3 + n) for n in (4, 2, 7, 1, 5)], pad_id=0).with_targets(torch.arange(5))
    shares = [batch.share(Processes(rank, size)) for rank in range(size)]
    assert [row for share in shares for row in rows_of(share)] == rows_of(batch)
    assert torch.cat([share.targets for share in shares if share.targets is not None]).tolist() == list(range(5))
    sizes = [len(share.ids) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_rows_of_an_example_stay_together(size: int) -> None:
    examples = [Rows(tuple(np.arange(3, 4 + n) for n in range(count))) for count in (2, 3, 1)]
    batch = pad(examples, pad_id=0).with_targets(torch.tensor([1, 2, 0]))
    shares = [batch.share(Processes(rank, size)) for rank in range(size)]
    assert [row for share in shares for row in rows_of(share)] == rows_of(batch)
    for share in shares:
        assert share.groups is not None
        assert share.targets is not None
        assert share.groups.unique().tolist() == list(range(len(share.targets)))


def test_the_loss_of_no_example_is_zero_and_has_a_gradient_for_every_weight() -> None:
    model = several_processes.classifier("lstm", 0.0)
    loss = nothing(model)
    loss.total.backward()
    assert (float(loss.total.detach()), loss.count) == (0.0, 0)
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


@pytest.mark.parametrize("name", several_processes.SCENARIOS)
def test_a_run_can_be_sent_to_another_process(name: str) -> None:
    model, phases, stream, _ = several_processes.scenario(name, 0.0)
    copy, phases_copy, stream_copy = unpacked(packed((model, phases, stream)))
    assert phases_copy == phases
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), copy.parameters(), strict=True))
    for one, other in zip(stream.batches(1, 2), stream_copy.batches(1, 2), strict=True):
        assert torch.equal(one.ids, other.ids)


def test_a_corpus_on_disk_is_opened_by_the_other_process(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["a b c d"] * 9, kind="word", min_frequency=1)
    corpus = build_corpus(["a b", "c d a"], tokenizer, tmp_path / "corpus", source_description="test", progress=False)
    sent = packed(corpus)
    assert len(sent) < 1_000
    assert unpacked(sent).read(0, 4).tolist() == corpus.read(0, 4).tolist()
    index = tmp_path / "corpus" / "index.json"
    index.write_text(index.read_text() + " ")
    with pytest.raises(UserError, match="another corpus than that of process 0"):
        unpacked(sent)
    index.unlink()
    with pytest.raises(UserError, match="not here") as caught:
        unpacked(sent)
    assert "drive that all machines share" in caught.value.remedy


def test_a_corpus_in_memory_is_copied() -> None:
    tokenizer = Tokenizer.train(["a b c d"] * 9, kind="word", min_frequency=1)
    corpus = Corpus.from_ids([np.array([1, 2]), np.array([3])], tokenizer, words=3, characters=5)
    copy = unpacked(packed(corpus))
    assert (copy.read(0, 3).tolist(), copy.num_words, copy.num_characters) == ([1, 2, 3], 3, 5)


def test_what_cannot_be_sent_is_said() -> None:
    with pytest.raises(UserError, match="cannot be sent to other processes"):
        packed(lambda: None)


def test_one_process_needs_no_connection() -> None:
    alone = processes.current()
    assert (alone.first, alone.several, alone.from_first(3), alone.signal(2)) == (True, False, 3, 2)
    assert (alone.gather("a"), alone.sums(1, 2)) == (["a"], [1, 2])


@pytest.mark.parametrize(
    ("environment", "several"),
    [({}, False), ({"WORLD_SIZE": "1", "RANK": "0"}, False), ({"WORLD_SIZE": "2", "RANK": "1"}, True)],
)
def test_torchrun_is_found_out_by_its_variables(environment: dict[str, str], several: bool) -> None:
    assert launched(environment) == several


def test_a_variable_that_is_no_number_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(UserError, match="RANK is 'first'"):
        processes.start()


def test_different_versions_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = [("host-a", {"textgraft": "1", "torch": "2", "Python": "3"})]
    theirs += [("host-b", {"textgraft": "1", "torch": "2.1", "Python": "3"})]
    monkeypatch.setattr(Processes, "gather", lambda self, value: theirs)
    with pytest.raises(UserError, match=r"process 1 has torch 2\.1, and process 0 has 2"):
        processes._validate_versions(Processes(0, 2))


def test_a_variable_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.setenv(name, "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(UserError, match="RANK is set, and MASTER_ADDR is not"):
        processes.start()


def test_a_process_leaves_whatever_its_threads_do() -> None:
    """The interpreter's own shutdown waits for this one; others it stops, and C++ may abort the process for that."""
    program = """
import atexit, threading
from textgraft.core.processes import leave
atexit.register(print, "closed")
threading.Thread(target=threading.Event().wait).start()
print("done")
leave(3)
"""
    done = subprocess.run([sys.executable, "-c", program], env=ENVIRONMENT, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (3, [b"done", b"closed"]), done.stderr


def test_what_processes_cannot_divide_is_said_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_current", Processes(0, 4))
    phase = Phase("p", 1, 0.01, optimizer="muon")
    with pytest.raises(UserError, match="batches of 2 rows cannot be divided over 4 processes"):
        Settings().of(Stage((phase,), batch_size=2))
    with pytest.raises(UserError, match="muon orthogonalises whole matrices"):
        Settings(sharding="full").of(Stage((phase,), batch_size=8))
    assert Settings().of(Stage((phase,), batch_size=8)) == Settings()


def test_errors_of_connections_are_told_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = RuntimeError("[/pytorch/third_party/gloo/transport/tcp/pair.cc:547] Connection closed by peer")
    assert not is_lost(closed)
    monkeypatch.setattr(processes, "_current", Processes(0, 2))
    assert is_lost(closed)
    assert not is_lost(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_a_checkpoint_does_not_depend_on_the_engine(tmp_path: Path) -> None:
    model, phases, stream, _ = several_processes.scenario("gpt", 0.0)
    run = Run(model, phases, stream, Settings(precision="fp32"))
    next(run.steps())
    tensors, state = run.collect()
    assert isinstance(run.engine, Single)
    assert {name.split(".")[0] for name in tensors} == {"model", "optimizer", "rng"}
    assert state["progress"]["step"] == 1


def test_a_run_that_patience_ended_is_saved_as_finished(tmp_path: Path) -> None:
    """With an optimizer in its checkpoint, a model in parts would be divided again and stay so."""
    model, phases, stream, validate = several_processes.scenario("thawing-bert", 0.0)
    run = Run(model, phases, stream, Settings(precision="fp32", validate_every=1, patience=1), validate)
    count = sum(1 for _ in run.steps())
    assert run.out_of_patience()
    assert count < 200
    assert (run.optimizer, run.collect()[1]["optimizer"]) == (None, None)


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one(tmp_path: Path) -> None:
    one = trained(1, tmp_path / "1", "thawing-bert")
    assert_same(one, trained(2, tmp_path / "2", "thawing-bert"), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "name"),
    [*((2, name) for name in several_processes.SCENARIOS), (4, "lstm"), (4, "bert"), (3, "thawing-lstm")],
)
def test_every_kind_of_training(name: str, size: int, tmp_path: Path) -> None:
    options = ("--steps", "60", "--double")  # in float32 some trainings make much of the last bit
    assert_same(trained(1, tmp_path / "1", name, *options), trained(size, tmp_path / "n", name, *options), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt", "lstm", "thawing-bert", "bridge"])
def test_a_model_in_parts(name: str, tmp_path: Path) -> None:
    one = trained(1, tmp_path / "1", name, "--steps", "30")
    assert_same(one, trained(2, tmp_path / "2", name, "--steps", "30", "--sharding", "full"), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "sharding"), [(1, "none"), (2, "none"), (2, "full"), (3, "full")])
def test_a_model_in_parts_goes_on_on_any_number_of_processes(size: int, sharding: str, tmp_path: Path) -> None:
    options = ("--steps", "100", "--save-seconds", "0")
    whole, out = trained(1, tmp_path / "whole", "bert", *options), tmp_path / "parts"
    killed(command(2, "bert", out, *options, "--sharding", "full"), out, steps=30)
    names = sorted(path.name for path in out.glob("checkpoint*"))
    assert names[0] == "checkpoint.safetensors"
    assert re.fullmatch(r"checkpoint\.safetensors\.\d+\.parts", names[-1])
    again = trained(size, out, "bert", *options, "--sharding", sharding)
    assert again["losses"][0][1] > 20
    expected = {tuple(row[:2]): row[2] for row in whole["losses"]}
    for phase, step, loss in again["losses"]:
        assert loss == pytest.approx(expected[phase, step], rel=1e-5)
    assert again["final"]["loss"] == pytest.approx(whole["final"]["loss"], rel=1e-5)
    left = [path.name for path in out.iterdir() if path.name.endswith(".parts")]
    assert len(left) <= 1, "the folders of earlier checkpoints are removed"


@pytest.mark.slow
def test_gradients_are_accumulated(tmp_path: Path) -> None:
    options = ("--steps", "20", "--accumulate", "3")
    assert_same(trained(1, tmp_path / "1", "lstm", *options), trained(2, tmp_path / "2", "lstm", *options))


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_activations_are_computed_again(name: str, tmp_path: Path) -> None:
    losses = []
    for again in (False, True):
        model, phases, stream, _ = several_processes.scenario(name, 0.1)
        run = Run(model, phases, stream, Settings(precision="fp32", activation_checkpointing=again))
        steps = run.steps()
        losses.append([next(steps).loss for _ in range(4)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_an_encoder_without_layers_cannot(tmp_path: Path) -> None:
    model, phases, stream, _ = several_processes.scenario("gpt", 0.0)
    run = Run(model, phases, stream, Settings(activation_checkpointing=True))
    run.model.encoder.layers = torch.nn.Sequential(*run.model.encoder.layers)
    with pytest.raises(UserError, match="no list of layers"):
        next(run.steps())


@pytest.mark.slow
@pytest.mark.parametrize("victims", ["one", "all"])
def test_killed_anywhere_and_run_again_it_ends_the_same(victims: str, tmp_path: Path) -> None:
    options = ("--steps", "150", "--dropout", "0.1", "--save-seconds", "0")
    whole = trained(2, tmp_path / "whole", "lstm", *options)
    for seed in range(3):
        out = tmp_path / f"killed {seed}"
        arguments = command(2, "lstm", out, *options)
        running = subprocess.Popen(arguments, env=ENVIRONMENT, stderr=subprocess.DEVNULL, start_new_session=True)
        wait_for_steps(out, random.Random(seed).randrange(5, 120))
        workers = [int(pid) for pid in children(running.pid)]
        for worker in workers if victims == "all" else workers[:1]:
            os.kill(worker, signal.SIGKILL)
        began = time.monotonic()
        assert running.wait(timeout=90)
        assert time.monotonic() - began < 60
        again = trained(2, out, "lstm", *options)
        assert again["weights"] == whole["weights"]
        alone = json.loads((out / "result.json").read_text())
        assert alone["final"] == whole["final"]


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    options = ("--steps", "100", "--save-seconds", "0")
    whole = trained(1, tmp_path / "whole", "lstm", *options)
    out = tmp_path / "changed"
    killed(command(2, "lstm", out, *options), out, steps=30)
    again = trained(1, out, "lstm", *options)
    assert again["losses"]
    expected = {tuple(row[:2]): row[2] for row in whole["losses"]}
    for phase, step, loss in again["losses"]:
        assert loss == pytest.approx(expected[phase, step], rel=1e-5)


def killed(arguments: list[str], out: Path, *, steps: int) -> None:
    """Start a training, and kill all its processes after some steps."""
    running = subprocess.Popen(arguments, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    wait_for_steps(out, steps)
    for worker in children(running.pid):
        os.kill(int(worker), signal.SIGKILL)
    running.wait(timeout=90)


def wait_for_steps(out: Path, steps: int) -> None:
    losses, limit = out / "losses.jsonl", time.monotonic() + 120
    while not losses.exists() or losses.read_text().count("\n") < steps:
        assert time.monotonic() < limit
        time.sleep(0.02)


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
