"""The corpus that is on every machine: Python's language reference, and what its standard library says about itself."""

from __future__ import annotations

import ast
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

# Of every ten texts, by size, these go into the held-out parts.
HELD_OUT = {4: "valid", 7: "test"}
# Not on every machine, since distributions put them into packages of their own or the next Python no longer has them; or tables.
OPTIONAL = {
    *(
        "distutils",
        "encodings",
        "ensurepip",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "dist-packages",
        "test",
        "tests",
    ),
    *("tkinter", "turtle.py", "turtledemo", "venv"),
}
DEFINING = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.If, ast.Try)
PROMPTS = (">>>", "...")  # of examples in docstrings


def write_corpus(directory: Path) -> dict[str, Path]:
    """The reference and the docstrings as three texts, cut by topic and by module: no line is in two of them."""
    from elman.core.files import replacing

    directory.mkdir(parents=True, exist_ok=True)
    seen: set[str] = set()
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for texts in (topic_texts(seen), module_texts(seen)):
        for number, text in enumerate(sorted(texts.values(), key=len, reverse=True)):
            parts[HELD_OUT.get(number % 10, "train")] += text.split("\n")
    paths = {name: directory / f"{name}.txt" for name in parts}
    taken: set[str] = set()
    for name, lines in parts.items():
        kept = [line for line in lines if line not in taken]
        taken.update(kept)
        with replacing(paths[name]) as temporary:
            temporary.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return paths


def topic_texts(seen: set[str]) -> dict[str, str]:
    """Each topic of the language reference, a line for a paragraph of prose and for a line of code."""
    from pydoc_data.topics import topics

    return _nonempty({name: _paragraphs(text, seen) for name, text in sorted(topics.items())})


def module_texts(seen: set[str], library: Path | None = None) -> dict[str, str]:
    """The docstrings of each module of the standard library, read from its source; nothing is imported or run.

    Empty where there are no sources (a Python that was shipped as bytecode): then the reference is all there is.
    """
    folder = library or Path(sysconfig.get_path("stdlib"))
    return _nonempty({name: _paragraphs("\n\n".join(_docstrings(folder / name)), seen) for name in _sources(folder)})


def _sources(folder: Path, below: str = "") -> Iterator[str]:
    """The files of modules that every machine has, relative to the folder, by name."""
    for path in sorted((folder / below).iterdir() if folder.is_dir() else (), key=lambda path: path.name):
        name = f"{below}{path.name}"
        if path.is_dir() and path.name.isidentifier() and name not in OPTIONAL:
            yield from _sources(folder, f"{name}/")
        elif path.suffix == ".py" and name not in OPTIONAL:
            yield name


def _docstrings(path: Path) -> Iterator[str]:
    """Of a module, its classes and its functions, in the order they stand in; of a file that is not Python, none."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    yield from _docstrings_in(tree)


def _docstrings_in(node: ast.AST) -> Iterator[str]:
    """Its own, and those of what is defined inside: also where a definition depends on a condition."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        docstring = ast.get_docstring(node)
        if docstring:
            yield docstring
    for child in getattr(node, "body", []):
        if isinstance(child, DEFINING):
            yield from _docstrings_in(child)


def _paragraphs(text: str, seen: set[str]) -> str:
    """A line for a paragraph of prose and for a line of code.

    Rules, tables and frames of lines are left out; and, since many texts quote others, whatever was there already.
    """
    kept = []
    for paragraph in re.split(r"\n\s*\n", text):
        is_code = re.search(r"^    ", paragraph, re.MULTILINE) is not None or paragraph.lstrip().startswith(PROMPTS)
        lines = [" ".join(line.split()) for line in paragraph.split("\n")]
        lines = [line for line in lines if re.search(r"\w", line) and line[0] not in "+|"]
        plain = ("\n" if is_code else " ").join(lines)
        if plain and plain not in seen:
            seen.add(plain)
            kept.append(plain)
    return "\n".join(kept)


def _nonempty(texts: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if text}
