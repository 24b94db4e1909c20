"""MkDocs hook: the reference pages, made from the program at build time, and links that leave docs/.

`reference/cli.md` comes from the commands' own help, `reference/api.md` from the public names of `textgraft`, and the
lab notes of `research/` become a page. None of them is kept in git under docs/, so none can go stale.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any, get_args

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

FROM_OUTSIDE = {"research/lab-notes.md": "lab-notes.md", "CONTRIBUTING.md": "contributing.md"}
"""Markdown files of the repository that become pages, by the name that their page has."""

API_SECTIONS = (
    ("Folders and clusters", r"^(process_files|BulkOptions|PredictWorker|EmbedWorker|TagWorker|open_engine)$"),
    ("Question answering", r"^(qa_|QA|read_squad)"),
    ("Tagging", r"^(tag_|Tag|SequenceTagger|read_conll|read_tagged|Stack$|Network$)"),
    ("Word vectors", r"^(train_vectors|VectorOptions|.*_vectors$|WordVectors|WordMemory)"),
    ("Translation and CoVe", r"^(cove_|CoVe|Translator|read_parallel)"),
    ("Inspecting models", r"^(inspect_|TransferOptions|WordOptions|GeometryOptions|Readout|LayerA|LayerOptions)"),
    ("Generation and prompting", r"^(generate|stream|score|prompt|complete|last_words|cloze|GenerateO|PromptO)"),
    (
        "Language models",
        r"^(pretrain|StreamedText|tokenize|adapt|lr_find|schedule|convert|fetch|list_models|Tokenizer|Settings|distil|Distil)",
    ),
    ("Classification", r""),
)
"""Sections of the API page; a name goes to the first whose pattern it matches. The last one is shown first."""

VALUES = {str: "text", int: "integer", float: "number", Path: "path"}
"""The types of options' values, as the tables name them."""

LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill the Concepts section with the pages of docs/concepts, so that a new one needs no line in mkdocs.yml."""
    for section in config.nav or []:
        if "Concepts" in section:
            pages = sorted((DOCS / "concepts").glob("*.md"), key=lambda path: (path.stem != "index", path.stem))
            section["Concepts"] = [f"concepts/{path.name}" for path in pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    pages = {"reference/cli.md": cli_page(), "reference/api.md": api_page()}
    pages |= {name: (ROOT / source).read_text("utf-8") for source, name in FROM_OUTSIDE.items()}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files outside docs/ into links to their pages, or into the files' names where they have none."""
    here = page.file.src_uri
    source = next((outside for outside, name in FROM_OUTSIDE.items() if name == here), f"docs/{here}")
    return LINK.sub(partial(_inside, source=source, page=here), markdown)


def _inside(link: re.Match[str], *, source: str, page: str) -> str:
    text, target = link.groups()
    path, _, anchor = target.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return link[0]
    full = normpath(str(PurePosixPath(source).parent / path))
    inside = FROM_OUTSIDE.get(full) or (full.removeprefix("docs/") if full.startswith("docs/") else None)
    if inside is not None:
        return f"[{text}]({relpath(inside, str(PurePosixPath(page).parent))}{'#' + anchor if anchor else ''})"
    if not (ROOT / full).exists():
        return link[0]  # a broken link, which the strict build reports
    return text if full in text else f"{text} (`{full}`)"


def cli_page() -> str:
    """The command-line reference: a section for each command, a table for each group of its options."""
    import textgraft.cli.app as app

    program = app._program().__self__  # type: ignore[attr-defined]
    lines = [
        "# Command line",
        "",
        _prose(program.help),
        "",
        "`--help` prints the same; `--debug` shows tracebacks.",
        "",
    ]
    for name, command in program.commands.items():
        lines += _group(name, command) if hasattr(command, "commands") else _command(name, command, "##")
    return "\n".join(lines)


def _group(name: str, group: Any) -> Iterator[str]:
    yield from (f"## textgraft {name}", "", _prose(group.help), "")
    for verb, command in group.commands.items():
        yield from _command(f"{name} {verb}", command, "###")


def _command(name: str, command: Any, heading: str) -> Iterator[str]:
    arguments = [p for p in command.params if not p.opts[0].startswith("-")]
    options = [p for p in command.params if p.opts[0].startswith("-")]
    usage = " ".join(_placeholder(argument) for argument in arguments)
    yield from (f"{heading} textgraft {name}", "")
    yield from ("```", f"textgraft {name} {usage} [OPTIONS]".replace("  ", " "), "```", "", _prose(command.help), "")
    if arguments:
        yield from ("| argument | |", "|---|---|")
        yield from (f"| `{_placeholder(a)}` | {_cell(a.help or '')} |" for a in arguments)
        yield ""
    panels: dict[str, list[Any]] = {}
    for option in options:
        panels.setdefault(getattr(option, "rich_help_panel", None) or "Options", []).append(option)
    for panel, members in panels.items():
        yield from (f"| {panel.lower()} | value | default | |", "|---|---|---|---|")
        yield from (f"| {_names(o)} | {_value(o)} | {_default(o)} | {_cell(o.help or '')} |" for o in members)
        yield ""
    example = (command.epilog or "").removeprefix("Example: ")
    if example and example not in (command.help or ""):
        yield from ("Example:", "", "```", example, "```", "")


def _placeholder(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _names(option: Any) -> str:
    return "<br>".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))


def _value(option: Any) -> str:
    """The type of the option's value, of each value where there are several; `flag` for an option without one."""
    if option.is_flag:
        return "flag"
    annotation = option.type_descriptor.annotation
    parts = get_args(annotation) or (annotation,)
    least = option.min is not None and parts[0] in (int, float)
    shown = " ".join(VALUES[part] for part in parts) + (f" ≥ {option.min:g}" if least else "")
    return shown + (", repeatable" if option.multiple else "")


def _default(option: Any) -> str:
    """The default; a dash where the option then has no value, and its help says what that means."""
    if option.required:
        return "required"
    if option.default is None:
        return "–"
    if not option.is_flag:
        return f"`{option.default}`"
    names = option.opts if option.default else option.secondary_opts
    return f"`{names[0]}`" if names else "off"


def _prose(text: str | None) -> str:
    """Paragraphs of a help text; one that is a command becomes code."""
    paragraphs = [" ".join(p.split()) for p in (text or "").split("\n\n")]
    commands = ("textgraft ", "curl ")
    return "\n\n".join(f"```\n{p}\n```" if p.startswith(commands) else _cell(p) for p in paragraphs)


def _cell(text: str) -> str:
    """Text as Markdown shows it to the letter, also in a table; what stands between backticks is left alone."""
    parts = " ".join(text.split()).split("`")
    escapes = {"|": "&#124;", "<": "&lt;", "*": "\\*", "_": "\\_", "[": "\\[", "]": "\\]"}
    parts[::2] = ["".join(escapes.get(c, c) for c in part) for part in parts[::2]]
    return "`".join(parts)


def api_page() -> str:
    """The Python reference: the public names of `textgraft` in sections, each an identifier for mkdocstrings."""
    public: dict[str, str] = import_module("textgraft")._PUBLIC
    sections: dict[str, list[str]] = {API_SECTIONS[-1][0]: [], **{title: [] for title, _ in API_SECTIONS[:-1]}}
    for name in public:
        sections[next(title for title, pattern in API_SECTIONS if re.search(pattern, name))].append(name)
    lines = ["# Python API", "", "All of these are names of the package: `textgraft.finetune`, `textgraft.load`, …", ""]
    for title, names in sections.items():
        lines += [f"## {title}", ""] if names else []
        for name in names:
            options = f"      heading: textgraft.{name}", f"      toc_label: {name}", "      heading_level: 3"
            lines += [f"::: {public[name]}.{name}", "    options:", *options, ""]
    return "\n".join(lines)
