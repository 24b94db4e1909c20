"""Imports run one way: each folder of the package imports only from those before it, inside functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import textgraft

PACKAGE = Path(textgraft.__file__).parent
FOLDERS = (
    *("core", "text", "data", "nn", "metrics", "report", "encoders", "heads", "onnx", "models", "training", "engines"),
    *("word_embeddings", "linear", "generation", "tasks", "comparison", "distillation", "conversion", "serving"),
    *("experiments", "api", "bulk", "cli", "__main__"),
)
"""In the order in which they may import one another: each only from those before it, and from itself."""
TASKS = ("language_modeling", "classification", "tagging", "question_answering", "translation")
"""The folders of tasks, likewise."""
UPWARD = {
    # The loader returns the predictor of a model's task, and a folder may hold models of several kinds. It knows them
    # by name, in literal registries, and imports what a folder turns out to need.
    ("models.loading", "word_embeddings.text_means"),
    ("models.loading", "linear.artifact"),
    ("models.loading", "conversion.hub"),
    ("models.loading", "tasks.registry"),
    ("models.artifact", "word_embeddings.stack"),
    ("models.graph", "tasks.registry"),
}
"""Imports that run upwards and may: each is a registry's, by name."""
CIRCULAR = {
    # Tokenizer.train and Tokenizer.load are constructors that return subclasses, whose modules import Tokenizer.
    ("textgraft.text.tokenizer", "textgraft.text.tokenizer_kinds"),
}
"""Imports that close a circle within a folder and may; each is inside a function."""


def module_name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node: ast.AST) -> Iterator[str]:
    """Every name that is imported in `node`, wherever it stands but under TYPE_CHECKING: a.b for `from a import b`
    and `import a.b` alike; and every string, since a registry names a module so."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "the package imports by whole names"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value.replace(":", ".")
    else:
        types_only = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in node.orelse if isinstance(node, ast.If) and types_only else ast.iter_child_nodes(node):
            yield from imported(child)


def import_graph(package: Path) -> dict[str, set[str]]:
    """Which modules of the package each of them imports; `from a import b` is of b where that is a module, else of a.

    A folder's __init__ that Python runs on the way is left out, unless something is taken from it, and so is the
    package's own, which names all that it opens the door to.
    """
    paths = {module_name(path, package): path for path in package.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        names = list(imported(ast.parse(path.read_text(encoding="utf-8"))))
        graph[module] = {found for name in names if (found := longest_known(name, paths))} - {module}
    return graph | {package.name: set()}


def longest_known(name: str, known: Mapping[str, Path]) -> str | None:
    """The module that a dotted name is, or is of."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules of a circle in their order, the first one again at the end; empty where there is none."""
    done: set[str] = set()

    def search(module: str, way: list[str]) -> list[str]:
        if module in way:
            return [*way[way.index(module) :], module]
        if module in done:
            return []
        for other in sorted(graph[module]):
            if found := search(other, [*way, module]):
                return found
        done.add(module)
        return []

    return next((found for module in sorted(graph) if (found := search(module, []))), [])


def without_package(module: str) -> str:
    return module.partition(".")[2]


def upward(graph: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """The imports that run upwards: from a folder to a later one, or between tasks."""
    edges = {(without_package(a), without_package(b)) for a in graph for b in graph[a] if "." in a and "." in b}

    def rank(module: str) -> int:
        return FOLDERS.index(module.partition(".")[0])

    def task(module: str) -> int | None:
        name = module.split(".")[1] if module.startswith("tasks.") else ""
        return TASKS.index(name) if name in TASKS else None

    def runs_up(a: str, b: str) -> bool:
        first, second = task(a), task(b)
        between_tasks = first is not None and second is not None and second > first
        return rank(b) > rank(a) or between_tasks

    return {(a, b) for a, b in edges if runs_up(a, b)}


@pytest.mark.slow
def test_every_module_lies_in_a_folder_of_the_order() -> None:
    graph = import_graph(PACKAGE)
    assert len(graph) > 100
    names = {without_package(module).partition(".")[0] for module in graph if "." in module}
    assert names == set(FOLDERS)
    assert {path.name for path in (PACKAGE / "tasks").iterdir() if (path / "__init__.py").exists()} == set(TASKS)


def test_no_import_runs_upwards_but_those_that_may() -> None:
    assert upward(import_graph(PACKAGE)) == UPWARD


def test_an_import_that_runs_upwards_is_seen() -> None:
    package = "textgraft"
    graph = {f"{package}.core.files": {f"{package}.text.words"}, f"{package}.text.words": {f"{package}.core.files"}}
    assert upward(graph) == {("core.files", "text.words")}
    graph = {f"{package}.tasks.classification.finetune": {f"{package}.tasks.tagging.finetune"}}
    assert upward(graph) == {("tasks.classification.finetune", "tasks.tagging.finetune")}


def test_modules_import_one_another_without_circles() -> None:
    allowed = CIRCULAR | {(f"textgraft.{a}", f"textgraft.{b}") for a, b in UPWARD}
    # A task's spec names the parts of the task, some of which read it.
    graph = {a: set() if a.endswith(".spec") else others for a, others in import_graph(PACKAGE).items()}
    assert circle({module: {o for o in others if (module, o) not in allowed} for module, others in graph.items()}) == []


@pytest.mark.slow
@pytest.mark.parametrize("edge", sorted(CIRCULAR))
def test_what_is_allowed_is_needed(edge: tuple[str, str]) -> None:
    graph = import_graph(PACKAGE)
    others = {(a, b) for a in graph for b in graph[a]} - (CIRCULAR - {edge})
    assert circle({module: {b for a, b in others if a == module} for module in graph})


@pytest.mark.parametrize(
    ("line", "closes"),
    [
        ("from house import up", True),
        ("import house.up", True),
        ("from house.up import roof", True),
        ("def f():\n    from house.up import roof", True),
        ("class C:\n    def f(self):\n        if self:\n            import house.up", True),
        ("try:\n    import house.up\nexcept ImportError:\n    pass", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.up", False),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    import house.up", True),
        ("OPENED = {'roof': 'house.up'}", True),
        ("OPENED = {'roof': 'house.up:roof'}", True),
        ("import houses.up", False),
        ("import house", False),
    ],
)
def test_circles_are_seen_wherever_an_import_stands(line: str, closes: bool, tmp_path: Path) -> None:
    house = tmp_path / "house"
    house.mkdir()
    (house / "__init__.py").write_text("")
    (house / "up.py").write_text("from house.down import stairs\nroof = stairs = 1\n")
    (house / "down.py").write_text(f"{line}\nstairs = 1\n")
    expected = ["house.down", "house.up", "house.down"] if closes else []
    assert circle(import_graph(house)) == expected


NETWORK = {"socket", "ssl", "http", "urllib", "asyncio", "uvicorn", "fastapi", "starlette", "requests", "httpx"}
NETWORK |= {"huggingface_hub", "httpx2", "fsspec", "ray"}
"""What can open a socket, of what the package may import."""


def libraries(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imported(ast.parse(path.read_text("utf-8")))}


def test_only_fetching_serving_and_the_engine_of_clusters_know_of_the_network() -> None:
    found = {module_name(path, PACKAGE) for path in PACKAGE.rglob("*.py") if NETWORK & libraries(path)}
    # The second only tells errors of these packages apart; the third switches the library off the network;
    # the fourth opens what the user names by a URL.
    allowed = "textgraft.conversion.downloads", "textgraft.conversion.hub_errors", "textgraft.data.huggingface_datasets"
    allowed = (*allowed, "textgraft.data.remote_files", "textgraft.serving.", "textgraft.engines.")
    assert {module for module in found if not module.startswith(allowed)} == set()
    assert {"textgraft.conversion.downloads", "textgraft.serving.server"} <= found
