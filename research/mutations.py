"""Random damage to files, for research/fuzz.py: to bytes, values of JSON and TOML, archives, headers of tensors."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

CHUNKS: Sequence[bytes] = (
    *(b"", b"\0", b"\n", b"\r", b"\r\n", b"\t", b" ", b",", b";", b'"', b"'", b"{", b"}", b"[", b"]", b":", b"=", b"#"),
    *(b"\xff", b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc3", b"\xe2\x80\xa8", b"\x1a", b"\x7f"),
    *(b"nan", b"inf", b"-1", b"0", b"1e999", b"null", b"true", b"\\ud800", b"\\u0000", b"__label__", b"sep=;", b"::"),
    *(
        b"9" * 30,
        b"9" * 5000,
        b"[" * 2000,
        b'{"a":' * 2000,
        b"\x80" * 8,
        b"\xff" * 8,
        b"\x7f\xff\xff\xff",
        b"text,label",
    ),
    *(
        b"-DOCSTART-",
        b"B-X",
        b"I-Y",
        b"1-2",
        b"1.1",
        b"T1\tX 0 99\tx",
        b"R1",
        b"*",
        "é".encode(),
        "ก็".encode(),
        b"\x85",
    ),
)
"""What readers may trip over."""
VALUES: Sequence[Any] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 0.5, 1e300, float("nan"), float("inf"), "", " ", "x", "\0"),
    *(
        "\ud800",
        "é",
        "9" * 400,
        "../..",
        "/",
        "a" * 300,
        [],
        {},
        [[]],
        [None],
        [0],
        ["x"],
        {"": None},
        {"x": {"y": []}},
    ),
    *(
        [1, 2, 3],
        [{"start": 0, "end": 1, "label": "X"}],
        [[0, 1, "X"]],
        "nan",
        "1e5",
        "O",
        "B-X",
        "single",
        "text",
        10**400,
    ),
)
"""Replacements of values in JSON."""
_TOML_VALUE = re.compile(rb"(?<=[=\[,])[ ]*[^\n,\]]+")
_TOML_VALUES = (
    b'""',
    b"0",
    b"-1",
    b"nan",
    b"inf",
    b"true",
    b"[]",
    b"{}",
    b'"x"',
    b"1e999",
    b"99999999999999999999",
    b"07:32:00",
)
_TOML_VALUES += (
    b"1979-05-27",
    b"[1, 2]",
    b'["x"]',
    b"{ a = 1 }",
    b"0.5",
    b"1",
    b'"\\u0000"',
    b'"one_cycle"',
    b'"../x.toml"',
)

Damage = Callable[[bytes, random.Random], bytes]


def of_bytes(data: bytes, generator: random.Random) -> bytes:
    """One change of bytes: put, lost, doubled, exchanged, cut."""
    at = generator.randrange(len(data) + 1)
    end = min(len(data), at + int(generator.expovariate(0.2)))
    kind = generator.randrange(7)
    if kind == 0:
        return data[:at] + generator.choice(CHUNKS) + data[at:]
    if kind == 1:
        return data[:at] + data[end:]
    if kind == 2:
        return data[:end] + data[at:end] * generator.randrange(1, 4) + data[end:]
    if kind == 3:
        return data[:at] + generator.choice(CHUNKS) + data[end:]
    if kind == 4:
        other = generator.randrange(len(data) + 1)
        return data[:at] + data[other : other + end - at] + data[end:]
    if kind == 5 and generator.random() < 0.3:
        return data[:at]
    return data[:at] + generator.randbytes(1) + data[at + 1 :]


def of_json_value(value: Any, generator: random.Random) -> Any:
    """The value with one part of it changed, lost, doubled or renamed."""
    if not isinstance(value, dict | list) or not value or generator.random() < 0.1:
        return generator.choice(VALUES)
    if isinstance(value, list):
        at = generator.randrange(len(value))
        kind = generator.randrange(8)
        changed = [of_json_value(value[at], generator)] if kind > 1 else [[], [value[at]] * 2][kind]
        return value[:at] + changed + value[at + 1 :]
    key, kind = generator.choice(list(value)), generator.randrange(10)
    if kind == 0:
        return {name: part for name, part in value.items() if name != key}
    if kind == 1:
        return {
            generator.choice([key + "s", "", "text", "label"]) if name == key else name: part
            for name, part in value.items()
        }
    if kind == 2:
        return {**value, generator.choice(list(value)): value[key]}
    return {**value, key: of_json_value(value[key], generator)}


def of_json(data: bytes, generator: random.Random) -> bytes:
    """A file of JSON, or a line of one, with another value in it; bytes where it is none."""
    lines = data.splitlines(keepends=True)
    try:
        try:
            return _dumped(of_json_value(json.loads(data), generator))
        except ValueError:
            at = generator.randrange(len(lines))
            lines[at] = _dumped(of_json_value(json.loads(lines[at]), generator)) + b"\n"
            return b"".join(lines)
    except (ValueError, RecursionError):
        return of_bytes(data, generator)


def of_toml(data: bytes, generator: random.Random) -> bytes:
    """A TOML file with another value for one of its keys."""
    places = [match.span() for match in _TOML_VALUE.finditer(data)]
    if not places:
        return of_bytes(data, generator)
    start, end = generator.choice(places)
    return data[:start] + generator.choice(_TOML_VALUES) + data[end:]


def of_lines(data: bytes, generator: random.Random) -> bytes:
    """A file whose lines are lost, doubled or exchanged, or whose fields are."""
    lines = data.splitlines(keepends=True)
    at, other = generator.randrange(len(lines)), generator.randrange(len(lines))
    kind = generator.randrange(4)
    if kind == 0:
        lines[at] = lines[other]
    elif kind == 1:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 2:
        del lines[at]
    else:
        separator = generator.choice([b"\t", b",", b" "])
        fields = lines[at].split(separator)
        fields[generator.randrange(len(fields))] = generator.choice(CHUNKS)
        lines[at] = separator.join(fields)
    return b"".join(lines)


def of_archive(data: bytes, generator: random.Random) -> bytes:
    """A zip archive with damage to one of its files, so that its checksum is right."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    name = generator.choice(list(files))
    files[name] = of_bytes(files[name], generator)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def of_gzip(data: bytes, generator: random.Random) -> bytes:
    """A gzip file with damage to what it holds."""
    return gzip.compress(of_bytes(gzip.decompress(data), generator), 1)


def of_safetensors(data: bytes, generator: random.Random) -> bytes:
    """A safetensors file with another value in its header."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = of_json(data[8:end], generator)
    return len(header).to_bytes(8, "little") + header + data[end:]


def damaged(data: bytes, suffix: str, generator: random.Random) -> bytes:
    """A file of that format with a few random changes, of its bytes or of what they mean."""
    of_format = BY_FORMAT.get(suffix, (of_lines,))
    for number in range(1 + int(generator.expovariate(1))):
        change = generator.choice((of_bytes, *of_format, *of_format)) if number == 0 else of_bytes
        try:
            data = change(data, generator)
        except (ValueError, IndexError, OSError, zipfile.BadZipFile, RecursionError):
            data = of_bytes(data, generator)
        if generator.random() < 0.5:
            break
    return data


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


BY_FORMAT: dict[str, Sequence[Damage]] = {
    ".json": (of_json,),
    ".jsonl": (of_json, of_lines),
    ".toml": (of_toml, of_lines),
    ".zip": (of_archive,),
    ".xlsx": (of_archive,),
    ".gz": (of_gzip,),
    ".safetensors": (of_safetensors,),
    ".bin": (),
    ".onnx": (),
    ".parquet": (),
    ".feather": (),
    ".arrow": (),
    ".db": (),
}
"""Changes of what the bytes of a format mean."""
