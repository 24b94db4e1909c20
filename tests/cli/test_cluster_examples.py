"""The examples for clusters are of valid syntax, and their commands have only options that exist."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from programs import call
from torch.distributed.run import get_args_parser

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def of_textgraft(words: list[str]) -> list[str]:
    """What follows `-m textgraft`, after torchrun's options, which its own parser must know."""
    start = words.index("-m")
    assert words[start + 1] == "textgraft"
    known = get_args_parser().parse_args([*words[words.index("torchrun") + 1 : start], "-m", "textgraft"])
    assert (known.max_restarts, known.rdzv_backend) == (3, "c10d")
    return words[start + 2 :]


def commands() -> dict[str, list[str]]:
    script = (EXAMPLES / "slurm.sh").read_text().replace("\\\n", " ")
    (line,) = (line for line in script.splitlines() if "torchrun" in line and not line.startswith("#"))
    line = line.replace('"$SLURM_NNODES"', "8")
    service, job = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    return {"slurm": shlex.split(line), "kubernetes": container["command"]}


@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_the_command_has_options_that_exist(name: str, tmp_path: Path) -> None:
    words = of_textgraft(commands()[name])
    folder = tmp_path / "tokens"
    done = call(*(folder if word.endswith("/tokens") else word for word in words))
    assert done.code == 2
    assert str(folder) in done.err.replace("\n", ""), done.err  # the options are right, and the folder is missing


def test_the_kubernetes_objects() -> None:
    service, job = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())
    assert [(one["apiVersion"], one["kind"]) for one in (service, job)] == [("v1", "Service"), ("batch/v1", "Job")]
    pod = job["spec"]["template"]["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == volumes
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
    assert "--nnodes=2" in pod["containers"][0]["command"]


def test_the_slurm_script_is_bash() -> None:
    subprocess.run(["bash", "-n", EXAMPLES / "slurm.sh"], check=True)
