"""The map is kept: rooms import only from rooms above them, and torch is imported by nothing that can do without."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import elman

PACKAGE = Path(elman.__file__).parent

# From top to bottom; a room may import from its own line and from the lines above. docs/ draws the same map.
ROOMS = (
    ("errors", "config", "tensors", "files"),
    ("text",),
    ("lm", "shaping"),
    ("counts",),
    ("mixture",),
    ("nets",),
    ("models",),
    ("search", "evaluate", "metrics"),
    ("explain", "pictures"),
    ("train",),
    ("build", "store", "export"),
    ("api",),
    ("compare", "serve"),
    ("cli",),
    ("testing", "__main__"),
)
LEVEL = {room: level for level, line in enumerate(ROOMS) for room in line}
FAMILY_BLIND = ("search", "evaluate", "metrics", "serve")  # written over states: they never ask which family it is
TORCH_ROOMS = ("nets", "models", "train", "explain", "export")  # all others import torch, and these, inside functions
# of a torch room, but free of torch: what is planned and told before a net is there
TORCH_FREE = tuple(f"elman.train.{name}" for name in ("budget", "plan", "progress", "threads"))


@dataclass(frozen=True)
class Import:
    """One import statement's target, as a dotted module or module.name."""

    target: str
    line: int
    is_eager: bool  # runs when the module is imported: not inside a function, not for type checkers only


def imports_of(tree: ast.Module, package: str) -> Iterator[Import]:
    """Every import in a file, wherever it stands; `package` is what relative imports are relative to."""
    yield from _imports(tree, package, is_eager=True)


def _imports(node: ast.AST, package: str, *, is_eager: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, is_eager)
    elif isinstance(node, ast.ImportFrom):
        base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
        module = ".".join(part for part in (base, node.module) if part)
        for alias in node.names:
            yield Import(f"{module}.{alias.name}", node.lineno, is_eager)
    elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for child in node.body:
            yield from _imports(child, package, is_eager=False)
        for child in node.orelse:
            yield from _imports(child, package, is_eager=is_eager)
    else:
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from _imports(child, package, is_eager=is_eager and not inside)


def room_of(target: str) -> str | None:
    """The room a dotted target is in; None for what is not ours, or is a name of the package itself (its version)."""
    parts = target.split(".")
    if parts[0] != "elman" or len(parts) == 1:
        return None
    return None if parts[1] in elman.__all__ and parts[1] not in LEVEL else parts[1]


def source_files() -> list[tuple[str, Path]]:
    """Room and path of every file in a room; the package's own __init__ only hands out names and is none."""
    files = []
    for path in sorted(PACKAGE.rglob("*.py")):
        first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if first != "__init__":
            files.append((first, path))
    return files


def imports_in(path: Path) -> list[Import]:
    package = ".".join(["elman", *path.relative_to(PACKAGE).parts[:-1]])
    return list(imports_of(ast.parse(path.read_text(encoding="utf-8")), package))


def upward_violations(room: str, imports: list[Import]) -> list[str]:
    """The imports of a file in `room` that reach down the map."""
    found = []
    for item in imports:
        other = room_of(item.target)
        if other is not None and LEVEL.get(other, len(ROOMS)) > LEVEL[room]:
            found.append(f"line {item.line}: {room} imports {item.target}, which stands below it")
    return found


def test_every_room_is_on_the_map() -> None:
    unknown = {room for room, _ in source_files()} - set(LEVEL)
    assert not unknown, f"put {sorted(unknown)} into ROOMS, where they belong"


def test_a_room_imports_only_from_rooms_above_it() -> None:
    found = [
        f"{path.relative_to(PACKAGE)} {violation}"
        for room, path in source_files()
        for violation in upward_violations(room, imports_in(path))
    ]
    assert not found, "\n".join(found)


def test_no_two_rooms_import_each_other() -> None:
    graph: dict[str, set[str]] = {}
    for room, path in source_files():
        others = {room_of(item.target) for item in imports_in(path)} - {None, room}
        graph.setdefault(room, set()).update(other for other in others if other is not None)
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError with the cycle


def test_search_evaluation_and_serving_never_see_a_family() -> None:
    for room, path in source_files():
        if room in FAMILY_BLIND:
            seen = {room_of(item.target) for item in imports_in(path)} & {"models", "nets", "counts", "mixture"}
            assert not seen, f"{path.relative_to(PACKAGE)} imports {seen}"


def test_torch_is_imported_eagerly_only_by_what_learns() -> None:
    for room, path in source_files():
        if room in TORCH_ROOMS:
            continue
        for item in imports_in(path):
            is_heavy = item.target.split(".")[0] == "torch" or room_of(item.target) in TORCH_ROOMS
            is_heavy = is_heavy and not item.target.startswith(TORCH_FREE)
            assert not (is_heavy and item.is_eager), f"{path.relative_to(PACKAGE)} line {item.line}: {item.target}"


def test_importing_what_needs_no_torch_imports_no_torch() -> None:
    """`import elman`, the command line, counting, searching and evaluating start without the seconds torch costs."""
    modules = ["elman"]
    for room, path in source_files():
        if room not in TORCH_ROOMS and room != "__main__":
            modules.append(".".join(["elman", *path.relative_to(PACKAGE).with_suffix("").parts]))
    program = f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name.removesuffix(".__init__"))
    if "torch" in sys.modules:
        sys.exit(f"{{name}} imports torch")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("room", "source", "expected"),
    [
        ("lm", "from elman.errors import UsageError", []),
        ("lm", "from elman import __version__", []),
        ("lm", "from elman.lm.search import greedy", ["elman.lm.search.greedy"]),
        ("lm", "import elman.lm.search", ["elman.lm.search"]),
        ("lm", "from elman import search", ["elman.lm.search"]),
        ("text", "def f():\n    from elman.api import load", ["elman.api.load"]),
        ("text", "if TYPE_CHECKING:\n    from elman.counts.trie import Trie", ["elman.counts.trie.Trie"]),
        ("counts", "from ..search import greedy", ["elman.lm.search.greedy"]),
        ("counts", "from elman.train.loop import train", ["elman.train.loop.train"]),
        ("cli", "from elman.attic import x", ["elman.attic.x"]),
        ("counts", "from . import trie\nfrom .trie import Trie", []),
        ("counts", "try:\n    import elman.cli\nexcept ImportError:\n    pass", ["elman.cli"]),
        ("search", "import numpy\nfrom elmanlike.cli import x", []),
    ],
)
def test_an_import_that_reaches_down_is_found_wherever_it_hides(room: str, source: str, expected: list[str]) -> None:
    imports = list(imports_of(ast.parse(source), f"elman.{room}"))
    found = upward_violations(room, imports)
    assert len(found) == len(expected)
    assert all(target in violation for target, violation in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    ("source", "is_eager"),
    [
        ("import torch", True),
        ("class A:\n    import torch", True),
        ("try:\n    import torch\nfinally:\n    pass", True),
        ("def f():\n    import torch", False),
        ("async def f():\n    if True:\n        from torch import nn", False),
        ("if typing.TYPE_CHECKING:\n    import torch", False),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import torch", True),
    ],
)
def test_an_import_counts_as_eager_where_it_runs_at_once(source: str, is_eager: bool) -> None:
    (found,) = imports_of(ast.parse(source), "elman.api")
    assert found.target.startswith("torch")
    assert found.is_eager == is_eager
