"""The map is kept: layers import only from layers above them, tasks are slices, and torch waits until it is needed."""

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

# From top to bottom; a room may import from its own line and from the lines above.
LAYERS = (
    ("core",),
    ("text",),
    ("lm",),
    ("counts",),
    ("spark",),
    ("nets",),
    ("training",),
    ("pictures", "charts", "curves", "store"),
    ("explain",),
    ("tasks",),
    ("api",),
    ("compare",),
    ("doctor", "engine", "export", "rescore", "serve"),
    ("cli",),
    ("testing", "__main__"),
)
LEVEL = {room: level for level, line in enumerate(LAYERS) for room in line}

# What a task may use of another one; all else that tasks share stands in plain modules of tasks/.
SLICE_USES = {
    "tag": {"bilm"},  # layers of language models as features of words
    "qa": {"seq2seq"},  # answers that are written
    "bilm": {"lm"},  # its nets are two of lm's, and the forward one is given as a language model
}
# Files outside of all slices that may import one, and why.
SLICE_USERS = {
    "api.py": {"lm"},  # Model, Score, mix and import_arpa are public names
    "tasks/base.py": {"lm"},  # only the type of what `language_model()` gives
}

# Written over states: they never ask which family of models they hold.
FAMILY_BLIND = (
    "lm/protocol.py",
    "lm/shaping.py",
    "lm/search.py",
    "lm/evaluate.py",
    "lm/prefixes.py",
    "rescore/",
    "engine/",
    "serve/",
)
FAMILIES = (
    "elman.counts",
    "elman.nets",
    "elman.tasks.lm",
    "elman.lm.mixture",
    "elman.lm.cache",
    "elman.lm.neural_cache",
)

TORCH_ROOMS = ("nets", "training")
# In a torch room, but free of torch: settings, plans, and what is said before a net is there.
TORCH_FREE = (
    *(f"nets/{name}.py" for name in ("config", "cutoffs", "memory", "ngrams", "sampling")),
    *(f"training/{name}.py" for name in ("budget", "config", "journal", "plan", "plan_rows", "plan_text")),
    *(f"training/{name}.py" for name in ("display", "progress", "threads", "world")),
)
# Kinds of explanations that go through a net by its gradients; each is imported when it is asked for.
TORCH_KINDS = (
    "explain/row_gradients.py",
    "explain/gradients.py",
    "explain/saliency.py",
    "explain/states.py",
    "explain/reach.py",
)
MAX_LINES = 400


@dataclass(frozen=True)
class Import:
    """One import statement's target, as a dotted module or module.name."""

    target: str
    line: int
    is_eager: bool  # runs when the module is imported: not inside a function, not for type checkers only


# -------------------------------------------------------------------------------------------------------- what is there


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
    """The room a dotted target is in; None for what is not ours, and for the version. Public names are the api's."""
    parts = target.split(".")
    if parts[0] != "elman" or len(parts) == 1 or parts[1] == "__version__":
        return None
    return "api" if parts[1] in elman.__all__ and parts[1] not in LEVEL else parts[1]


def slice_of(parts: tuple[str, ...]) -> str | None:
    """The slice that a place below the package is in: ("tasks", "tag", "net.py") is in tag, ("tasks", "run.py") in none."""
    if len(parts) < 2 or parts[0] != "tasks" or not (PACKAGE / "tasks" / parts[1]).is_dir():
        return None
    return parts[1]


def source_files() -> list[str]:
    """Every file in a room; the package's own __init__ only hands out names and is in none."""
    found = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
    return [name for name in found if name != "__init__.py"]


def home_of(name: str) -> str:
    """The room a file is in."""
    return name.partition("/")[0].removesuffix(".py")


def imports_in(name: str) -> list[Import]:
    package = ".".join(["elman", *name.split("/")[:-1]])
    return list(imports_of(ast.parse((PACKAGE / name).read_text(encoding="utf-8")), package))


def module_of(name: str) -> str:
    """tasks/tag/net.py as elman.tasks.tag.net."""
    return ".".join(["elman", *name.removesuffix(".py").removesuffix("/__init__").split("/")])


# ------------------------------------------------------------------------------------------------------ what is refused


def upward_violations(room: str, imports: list[Import]) -> list[str]:
    """The imports of a file in `room` that reach down the map."""
    found = []
    for item in imports:
        other = room_of(item.target)
        if other is not None and LEVEL.get(other, len(LAYERS)) > LEVEL[room]:
            found.append(f"line {item.line}: {room} imports {item.target}, which stands below it")
    return found


def slice_violations(name: str, imports: list[Import]) -> list[str]:
    """The imports of a file that reach into a slice that it has no business with."""
    own = slice_of(tuple(name.split("/")))
    allowed = SLICE_USES.get(own, set()) | {own} if own else SLICE_USERS.get(name, set())
    found = []
    for item in imports:
        other = slice_of(tuple(item.target.split(".")[1:])) if item.target.startswith("elman.") else None
        if other is not None and other not in allowed:
            found.append(f"line {item.line}: {name} imports {item.target}, of the task {other}")
    return found


def may_import_torch(name: str) -> bool:
    """Whether a file may import torch when it is imported."""
    last = name.rpartition("/")[2]
    if last == "net.py" or last.endswith("_net.py"):
        return True
    is_light = name in TORCH_FREE or last == "__init__.py"
    return name in TORCH_KINDS or (home_of(name) in TORCH_ROOMS and not is_light)


HEAVY = tuple(module_of(name) for name in source_files() if may_import_torch(name))


def torch_violations(imports: list[Import]) -> list[str]:
    """The imports of a file free of torch that bring torch in."""
    found = []
    for item in imports:
        is_heavy = any(item.target == module or item.target.startswith(f"{module}.") for module in ("torch", *HEAVY))
        if is_heavy and item.is_eager:
            found.append(f"line {item.line}: {item.target} brings torch in")
    return found


# ---------------------------------------------------------------------------------------------------------- the package


def test_every_room_is_on_the_map() -> None:
    unknown = {home_of(name) for name in source_files()} - set(LEVEL)
    assert not unknown, f"put {sorted(unknown)} into LAYERS, where they belong"


def test_a_room_imports_only_from_rooms_above_it() -> None:
    found = [f"{name} {one}" for name in source_files() for one in upward_violations(home_of(name), imports_in(name))]
    assert not found, "\n".join(found)


def test_no_two_rooms_import_each_other() -> None:
    graph: dict[str, set[str]] = {}
    for name in source_files():
        others = {room_of(item.target) for item in imports_in(name)} - {None, home_of(name)}
        graph.setdefault(home_of(name), set()).update(other for other in others if other is not None)
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError with the cycle


def test_a_task_is_a_slice_that_nobody_reaches_into_but_those_who_say_so() -> None:
    found = [one for name in source_files() for one in slice_violations(name, imports_in(name))]
    assert not found, "\n".join(found)


def test_every_use_of_a_slice_that_is_declared_is_one() -> None:
    """What is allowed and no longer needed is taken from the lists."""
    used: dict[str, set[str]] = {}
    for name in source_files():
        others = {slice_of(tuple(item.target.split(".")[1:])) for item in imports_in(name)}
        used.setdefault(slice_of(tuple(name.split("/"))) or name, set()).update(other for other in others if other)
    for user, slices in {**SLICE_USES, **SLICE_USERS}.items():
        assert slices <= used.get(user, set()), f"{user} does not use {slices - used.get(user, set())} any more"


def test_search_evaluation_and_serving_never_see_a_family() -> None:
    for name in source_files():
        if name.startswith(FAMILY_BLIND):
            seen = [item.target for item in imports_in(name) if item.target.startswith(FAMILIES)]
            assert not seen, f"{name} imports {seen}"


def test_torch_is_imported_eagerly_only_by_what_learns() -> None:
    light = [name for name in source_files() if not may_import_torch(name)]
    assert set(TORCH_FREE) <= set(light), f"there is no {sorted(set(TORCH_FREE) - set(light))}"
    found = [f"{name} {one}" for name in light for one in torch_violations(imports_in(name))]
    assert not found, "\n".join(found)


def test_importing_what_needs_no_torch_imports_no_torch() -> None:
    """`import elman`, the command line, counting, searching and evaluating start without the seconds torch costs."""
    light = [name for name in source_files() if not may_import_torch(name) and name != "__main__.py"]
    program = f"""
import importlib, sys
for name in {["elman", *map(module_of, light)]!r}:
    importlib.import_module(name)
    if "torch" in sys.modules:
        sys.exit(f"{{name}} imports torch")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_no_file_is_longer_than_one_sitting() -> None:
    sizes = {name: len((PACKAGE / name).read_text(encoding="utf-8").splitlines()) for name in source_files()}
    long = {name: size for name, size in sizes.items() if size > MAX_LINES}
    assert not long, f"a file of more than {MAX_LINES} lines is two files: {long}"


# ---------------------------------------------------------------------------------------------------------- the checker


@pytest.mark.parametrize(
    ("room", "source", "expected"),
    [
        ("lm", "from elman.core.errors import UsageError", []),
        ("lm", "from elman import __version__", []),
        ("lm", "from elman import EvaluateOptions", ["elman.EvaluateOptions"]),
        ("lm", "from elman.counts.trie import Trie", ["elman.counts.trie.Trie"]),
        ("lm", "import elman.nets.cells", ["elman.nets.cells"]),
        ("lm", "from elman import tasks", ["elman.tasks"]),
        ("text", "def f():\n    from elman.api import load", ["elman.api.load"]),
        ("text", "if TYPE_CHECKING:\n    from elman.counts.trie import Trie", ["elman.counts.trie.Trie"]),
        ("counts", "from ..nets import cells", ["elman.nets.cells"]),
        ("counts", "from elman.training.loop import train", ["elman.training.loop.train"]),
        ("store", "from elman.tasks.base import Task", ["elman.tasks.base.Task"]),
        ("cli", "from elman.attic import x", ["elman.attic.x"]),
        ("counts", "from . import trie\nfrom .trie import Trie", []),
        ("counts", "try:\n    import elman.cli\nexcept ImportError:\n    pass", ["elman.cli"]),
        ("counts", "from elman.lm.search import beam_search", []),
        ("core", "import numpy\nfrom elmanlike.cli import x", []),
    ],
)
def test_an_import_that_reaches_down_is_found_wherever_it_hides(room: str, source: str, expected: list[str]) -> None:
    imports = list(imports_of(ast.parse(source), f"elman.{room}"))
    found = upward_violations(room, imports)
    assert len(found) == len(expected)
    assert all(target in violation for target, violation in zip(expected, found, strict=True))


@pytest.mark.parametrize(
    ("name", "source", "is_refused"),
    [
        ("tasks/tag/net.py", "from elman.tasks.bilm.net import BilmFeatures", False),
        ("tasks/tag/net.py", "from elman.tasks.tag.data import Form", False),
        ("tasks/tag/net.py", "from elman.tasks.base import NetTask", False),
        ("tasks/tag/net.py", "from elman.tasks.seq2seq.net import Seq2SeqModel", True),
        ("tasks/tag/net.py", "def f():\n    from elman.tasks.lm import model", True),
        ("tasks/bilm/net.py", "from elman.tasks import tag", True),
        ("tasks/run.py", "from elman.tasks.lm.task import LmTask", True),
        ("tasks/run.py", "from elman.tasks import base", False),
        ("cli/predict.py", "from elman.tasks.tag.model import Tagger", True),
        ("api.py", "from elman.tasks.lm.model import Model", False),
        ("api.py", "from elman.tasks.tag.model import Tagger", True),
    ],
)
def test_an_import_out_of_another_slice_is_found(name: str, source: str, is_refused: bool) -> None:
    package = ".".join(["elman", *name.split("/")[:-1]])
    assert bool(slice_violations(name, list(imports_of(ast.parse(source), package)))) == is_refused


@pytest.mark.parametrize(
    ("source", "is_refused"),
    [
        ("import torch", True),
        ("from torch import nn", True),
        ("from elman.tasks.tag.net import TaggerNet", True),
        ("import elman.nets.cells", True),
        ("from elman.nets import cells", True),
        ("from elman.nets.config import NetConfig", False),
        ("from elman.training.budget import Budget", False),
        ("def f():\n    import torch", False),
        ("import torchless", False),
    ],
)
def test_what_brings_torch_in_is_found(source: str, is_refused: bool) -> None:
    assert bool(torch_violations(list(imports_of(ast.parse(source), "elman.api")))) == is_refused


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
