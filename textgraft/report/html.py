"""HTML elements of a report; all text is escaped."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from textgraft.core import formatting
from textgraft.report.plots import Plot

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{body}
</main>
</body>
</html>
"""


def text(value: object) -> str:
    """Escaped text for an element or an attribute.

    >>> text("<b>")
    '&lt;b&gt;'
    """
    return html.escape(formatting.printable(value), quote=True)


def page(title: str, body: str) -> str:
    """A complete document with its style inside; its policy forbids loading or running anything."""
    style = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    return PAGE.format(title=text(title), style=style, body=body)


def section(name: str, title: str, *parts: str) -> str:
    """A section with a heading that can be linked to; empty if all its parts are."""
    body = "\n".join(part for part in parts if part)
    return f'<section id="{name}">\n<h2>{text(title)}</h2>\n{body}\n</section>' if body else ""


def paragraph(value: str, css_class: str = "") -> str:
    return f'<p{_class(css_class)} dir="auto">{text(value)}</p>' if value else ""


def figure(plot: Plot) -> str:
    return f'<figure class="scroll">{plot.svg()}</figure>'


def details(summary: str, *parts: str) -> str:
    """A collapsed block with a summary line; empty if all its parts are."""
    body = "\n".join(part for part in parts if part)
    return f"<details>\n<summary>{text(summary)}</summary>\n{body}\n</details>" if body else ""


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], *, caption: str, css: Sequence[str] = ()) -> str:
    """A table whose first column names the row.

    Args:
        head: Column headings.
        rows: Cells of each row.
        caption: Caption of the table.
        css: Class of each column ("number" aligns right).
    """
    if not rows:
        return ""
    classes = [*css, *[""] * (len(head) - len(css))]
    top = "".join(f'<th scope="col"{_class(c)}>{text(h)}</th>' for h, c in zip(head, classes))
    body = "\n".join(f"<tr>{_row(row, classes)}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table>\n<caption>{text(caption)}</caption>\n'
        f"<thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def facts(values: Mapping[str, Any]) -> str:
    """A list of names and values; nested mappings become sublists under their names."""
    plain = {k: v for k, v in values.items() if not isinstance(v, Mapping)}
    parts = []
    if plain:
        pairs = "\n".join(f"<dt>{_name(k)}</dt><dd>{text(_value(v))}</dd>" for k, v in plain.items())
        parts.append(f"<dl>\n{pairs}\n</dl>")
    parts += [f"<h3>{_name(k)}</h3>\n{facts(v)}" for k, v in values.items() if isinstance(v, Mapping) and v]
    return "\n".join(parts)


def _row(cells: Sequence[Any], classes: Sequence[str]) -> str:
    first = f'<th scope="row"{_class(classes[0])} dir="auto">{text(cells[0])}</th>'
    return first + "".join(f'<td{_class(c)} dir="auto">{text(cell)}</td>' for cell, c in zip(cells[1:], classes[1:]))


def _class(css_class: str) -> str:
    return f' class="{css_class}"' if css_class else ""


def _name(key: str) -> str:
    return text(key.replace("_", " "))


def _value(value: Any) -> str:
    if value is None:
        return formatting.NOT_KNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else f"{value:.6g}"
    return ", ".join(_value(v) for v in value) if isinstance(value, list | tuple) else str(value)
