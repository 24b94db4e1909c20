"""The engine of clusters on Ray, where it is installed: its mistakes at once, its work on small clusters (slow)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_up_reviews import reviews
from programs import environment, snapshot
from served import made

import textgraft
from textgraft import UserError
from textgraft.bulk.process import BulkOptions, process_files
from textgraft.bulk.workers import PredictWorker
from textgraft.comparison.methods import MethodOptions
from textgraft.data.examples import Examples
from textgraft.engines import ray_engine
from textgraft.engines.registry import open_engine
from textgraft.models import artifact

ray = pytest.importorskip("ray", reason="Ray is not installed")
ROWS = 400


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://127.0.0.1:10001", "address of a Ray client.*machine of the cluster"),
        ("not an address:port", "this is no address"),
        ("127.0.0.1:99999", "no Ray cluster"),
    ],
)
def test_addresses_that_are_none(address: str, message: str) -> None:
    with pytest.raises(UserError, match=message), open_engine("ray", address=address):
        pass


def test_a_cluster_that_is_not_there() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(UserError, match=r"no Ray cluster \(.*refused.*\)\. Start Ray there"):  # noqa: SIM117
            with open_engine("ray", address=f"127.0.0.1:{port}"):
                pass


@pytest.fixture(scope="module", autouse=True)
def one_setting_of_linear_layers() -> None:
    """Replaces that of tests/conftest.py: other processes choose among all settings, and so must this one."""


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head without processors, to which tests add nodes."""
    from ray.cluster_utils import Cluster

    made_here = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made_here
    made_here.shutdown()


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    (tmp_path / "texts").mkdir()
    for name in ("a", "b"):
        lines = [json.dumps({"id": f"{name}{n}", "text": f"a film {n}" if n % 7 else ""}) for n in range(ROWS)]
        (tmp_path / "texts" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "texts"


@pytest.mark.slow
def test_a_node_and_then_the_driver_are_killed(cluster: Any, sources: Path, tmp_path: Path) -> None:
    model = artifact.save(made("single"), tmp_path / "model")
    worker, options = PredictWorker(str(model), device="cpu"), BulkOptions(block_rows=2)
    process_files(worker, sources, tmp_path / "local", options=options)
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    command = [sys.executable, "-m", "textgraft", "predict", model, sources, "--out", tmp_path / "ray"]
    command += ["--block-rows", "2", "--device", "cpu", "--engine", "ray", "--address", cluster.address]
    for kill in (lambda process: cluster.remove_node(nodes.pop(), allow_graceful=False), subprocess.Popen.kill, None):
        before = len(list((tmp_path / "ray").glob("*.jsonl")))
        with subprocess.Popen(list(map(str, command)), env=environment(), stderr=subprocess.PIPE) as process:
            while process.poll() is None and kill is not None:
                if len(list((tmp_path / "ray").glob("*.jsonl"))) > before + 20:
                    kill(process)
                    break
                time.sleep(0.02)
            if kill is not subprocess.Popen.kill:
                said = process.communicate(timeout=500)[1].decode()
                assert process.returncode == 0, said
                assert said.splitlines()[-1].startswith("Written: "), said
        if kill is not None and kill is not subprocess.Popen.kill:
            for path in list((tmp_path / "ray").glob("*.jsonl"))[::2]:
                path.unlink()
    assert snapshot(tmp_path / "ray") == snapshot(tmp_path / "local")


@pytest.mark.slow
def test_mistakes_of_the_work_come_back_with_the_machine(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = artifact.save(made("pairs"), tmp_path / "model")
    with open_engine("ray", workers=1) as engine:
        with pytest.raises(UserError, match=f"{socket.gethostname()}: this model was trained on pairs of texts"):
            process_files(PredictWorker(str(model)), sources, tmp_path / "out", engine=engine)
        monkeypatch.setattr(ray_engine, "__version__", "9")
        with pytest.raises(UserError, match=r"textgraft has version .* there, and 9 here"):
            ray_engine._validate_nodes(ray)
        (sources / "b.jsonl").write_text('{"text": "a"}\n{')
        model = artifact.save(made("single"), tmp_path / "single")
        with pytest.raises(UserError, match=r"b\.jsonl line 2 on .*: not valid JSON"):
            process_files(PredictWorker(str(model)), sources, tmp_path / "out", engine=engine)


@pytest.mark.slow
def test_a_comparison_has_the_same_numbers(tiny_lm: Path, tmp_path: Path) -> None:
    import torch

    train, test = (Examples(*reviews(count, seed), "single") for count, seed in ((40, 1), (30, 2)))
    pool = reviews(200, 3)[0]
    results = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name in ("local", "ray"):
            with open_engine(name) as engine:
                options = MethodOptions(model=tiny_lm, seeds=2, max_tokens=32, show=False, engine=engine)
                results[name] = textgraft.compare(
                    train,
                    tmp_path / name,
                    test=test,
                    unlabelled=pool,
                    methods=["linear", "vectors", "frozen"],
                    labels=[20, 40],
                    options=options,
                )
    finally:
        torch.set_num_threads(threads)
    for local, other in zip(results["local"]["budgets"], results["ray"]["budgets"], strict=True):
        for method, row in local["methods"].items():
            assert row["accuracy"] == other["methods"][method]["accuracy"]
            assert row["log_loss"] == other["methods"][method]["log_loss"]


@pytest.mark.slow
def test_a_search_finds_the_same(tiny_lm: Path, tmp_path: Path) -> None:
    import torch

    train, results = Examples(*reviews(40, 1), "single"), {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name in ("local", "ray"):
            with open_engine(name) as engine:
                options = textgraft.TuneOptions(
                    tiny_lm, "frozen", trials=4, folds=2, max_tokens=32, show=False, engine=engine
                )
                results[name] = textgraft.tune(train, tmp_path / name, options=options)
    finally:
        torch.set_num_threads(threads)
    assert results["local"]["best"] == results["ray"]["best"]
    for local, other in zip(results["local"]["trials"], results["ray"]["trials"], strict=True):
        assert (local["values"], local["loss"]) == (other["values"], other["loss"])
