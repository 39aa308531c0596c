"""The audit plugin finds what elman must not do, and passes over what test runners do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.audit import PACKAGE, find_breach

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("event", "arguments", "file", "is_found"),
    [
        ("pickle.find_class", ("os", "system"), "store.py", True),
        ("socket.connect", (None, ("10.0.0.1", 80)), "serve/app.py", True),
        ("socket.connect", (None, ("127.0.0.1", 80)), "serve/app.py", False),
        ("socket.connect", (None, "/run/socket"), "serve/app.py", False),
        ("subprocess.Popen", ("ls",), "core/stored.py", True),
        ("subprocess.Popen", ("draw",), "pictures.py", False),
        ("open", ("/etc/passwd",), "store.py", False),
    ],
)
def test_what_counts(event: str, arguments: tuple[object, ...], file: str, is_found: bool) -> None:
    files = ["/usr/lib/python3/threading.py", f"{PACKAGE}/{file}"]
    assert (find_breach(event, arguments, files) is not None) == is_found
    assert find_breach(event, arguments, files[:1]) is None


def test_rows_of_spark_come_as_pickles_and_nothing_else_does() -> None:
    transport = "/usr/lib/python3/site-packages/pyspark/serializers.py"
    for file, is_found in (("spark/lines.py", False), ("store.py", True)):
        found = find_breach("pickle.find_class", ("__builtin__", "bytearray"), [transport, f"{PACKAGE}/{file}"])
        assert (found is not None) == is_found
    assert find_breach("pickle.find_class", ("os", "system"), [f"{PACKAGE}/spark/lines.py"]) is not None


def test_a_test_fails_that_makes_elman_unpickle(tmp_path: Path) -> None:
    place = tmp_path / "test_it.py"
    place.write_text(
        "import collections, pickle\nfrom elman.core import prefetch\n"
        "DATA = pickle.dumps(collections.OrderedDict())\n"
        "def test_ours(monkeypatch):\n"
        "    code = compile('loads(data)', prefetch.__file__, 'eval')\n"
        "    eval(code, {'loads': pickle.loads, 'data': DATA})\n"
        "def test_not_ours():\n    pickle.loads(DATA)\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.audit", "-p", "no:cacheprovider", "-c", "/dev/null"]
    done = subprocess.run([*command, str(place)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "pickle.find_class ('collections', 'OrderedDict') in core/prefetch.py" in done.stdout
