"""CoNLL-U specifics: the text of a sentence with multiword tokens and `SpaceAfter=No`."""

from __future__ import annotations

from collections.abc import Sequence


def surface(rows: Sequence[list[str]]) -> tuple[str, list[tuple[int, int]]]:
    """Text of a CoNLL-U sentence and the spans of its words.

    Words of a multiword token that it does not spell share the token's span.

    Args:
        rows: Cells of each line, multiword tokens and unwritten words included.
    """
    text, spans = "", []
    covered, shared = 0, (0, 0)
    for index, cells in enumerate(rows):
        id, form, space = cells[0], cells[1], "" if "SpaceAfter=No" in cells[9].split("|") else " "
        if "." in id:
            continue
        if "-" in id:
            begin, _, end = id.partition("-")
            inside = [c[1] for c in rows[index + 1 :] if c[0].isdigit() and int(begin) <= int(c[0]) <= int(end)]
            covered, shared = int(end), (len(text), len(text) + len(form))
            if "".join(inside) == form:
                offset = len(text)
                for word in inside:
                    spans.append((offset, offset + len(word)))
                    offset += len(word)
            else:
                spans += [shared] * len(inside)
            text += form + space
        elif int(id) > covered:
            spans.append((len(text), len(text) + len(form)))
            text += form + space
    return text.rstrip(" "), spans
