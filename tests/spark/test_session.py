"""What is refused before a Spark is there, each in bounded time; and that nobody pays for it who does not ask for it."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from elman.core.errors import ElmanError, MissingError, UsageError, WriteError
from elman.spark import session as module
from elman.spark.config import CountConfig
from tests.commands import Run


def fake_java(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2020-01-01' >&2\n")
    java.chmod(0o755)
    return folder


def test_no_java_and_a_wrong_one_are_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "t.txt"
    text.write_text("a b\n")
    command = ("train", "lm", text, "--out", tmp_path / "m", "--set", "count.engine=spark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    none = run(*command)
    assert (none.code, "needs Java" in none.err, "openjdk-17" in none.err) == (66, True, True)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_292")))
    old = run(*command)
    assert (old.code, "is Java 8" in old.err) == (2, True)
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", "21.0.1")))
    module._check_java()
    assert not (tmp_path / "m").exists()


def test_a_master_that_does_not_answer_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(ElmanError, match="does not answer"):
            module._check_master(f"spark://127.0.0.1:{taken.getsockname()[1]}")
        taken.listen()
        module._check_master(f"spark://127.0.0.1:{taken.getsockname()[1]}")
    with pytest.raises(UsageError, match="no master of Spark"):
        module._check_master("127.0.0.1:7077")


class SlowSession:
    """A cluster without a free executor."""

    sparkContext = property(lambda self: self)  # noqa: N815  (as Spark calls it)

    def range(self, size: int) -> SlowSession:
        return self

    def count(self) -> int:
        import time

        time.sleep(30)
        return 1

    def cancelAllJobs(self) -> None:  # noqa: N802
        self.is_cancelled = True


def test_a_cluster_without_executors_is_not_waited_for_for_ever() -> None:
    cluster = SlowSession()
    with pytest.raises(ElmanError, match=r"no executor in 0\.1 s"):
        module._wait_for_executors(cluster, 0.1, "spark://host:7077")
    assert cluster.is_cancelled


def test_a_java_that_is_gone_does_not_hide_why_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal to a process group ended Java first: instead of exit 143, stopping Spark was reported as a bug."""
    pytest.importorskip("pyspark")
    from py4j.protocol import Py4JError

    class GoneSession(SlowSession):
        defaultParallelism = 1  # noqa: N815
        conf = property(lambda self: self)

        def get(self, key: str, default: object = None) -> str:
            return "2"

        def stop(self) -> None:
            raise Py4JError("SparkSession does not exist in the JVM")

    monkeypatch.setattr(module, "_check_java", lambda: None)
    monkeypatch.setattr(module, "_start", lambda *arguments: GoneSession())
    with pytest.raises(KeyboardInterrupt), module.session(CountConfig(engine="spark", master="local[1]")):
        raise KeyboardInterrupt


class Builder:
    """Notes what a session is to be made with."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}

    def master(self, url: str) -> Builder:
        return self

    def appName(self, name: str) -> Builder:  # noqa: N802
        return self

    def config(self, key: str, value: str) -> Builder:
        self.settings[key] = value
        return self

    def getOrCreate(self) -> Builder:  # noqa: N802
        return self


def test_a_local_spark_writes_where_other_temporary_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own place is /tmp, whatever TMPDIR says."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)  # it sets them, and the test takes them away again
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")

    def place(master: str, conf: str = "") -> str | None:
        started = module._start(SimpleNamespace(builder=Builder()), master, CountConfig(conf=conf), tmp_path)
        found: str | None = started.settings.get("spark.local.dir")
        return found

    assert place("local[2]") == str(tmp_path)
    assert place("local[2]", "spark.local.dir=/large") == "/large"
    assert place("spark://host:7077") is None


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("java.io.IOException: No space left on device", WriteError, "no space left"),
        ("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03", MissingError, "file:/x"),
        ("java.lang.OutOfMemoryError: Java heap space", ElmanError, "out of memory"),
        (
            "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.",
            ElmanError,
            "Spark has stopped",
        ),
        (
            'java.lang.NullPointerException: the return value of "org.apache.spark.sql.execution.SparkPlan.session()" is null',
            ElmanError,
            "Spark has stopped",
        ),
        ("Job aborted\nCaused by: java.lang.RuntimeException: broken", ElmanError, "broken"),
        ("elman.core.errors.ElmanError: an executor has elman 0.0.1\nhint: x", ElmanError, "an executor has"),
        ("ModuleNotFoundError: No module named 'elman'", ElmanError, "has no elman"),
    ],
)
def test_what_goes_wrong_in_spark_is_told_in_words(text: str, kind: type[ElmanError], message: str) -> None:
    failure = type("Failure", (Exception,), {"__module__": "pyspark.errors"})
    with pytest.raises(kind, match=message) as caught, module.translated():
        raise failure(text)
    assert type(caught.value) is kind
    with pytest.raises(ValueError, match="ours"), module.translated():
        raise ValueError("ours")


def test_settings_of_the_engine_apply_to_it_alone(run: Run, tmp_path: Path) -> None:
    text = tmp_path / "t.txt"
    text.write_text("a b\n")
    cases = [
        (("lm", "--set", "count.master=local[2]"), "count.master is for count.engine=spark"),
        (("lm", "--model", "lstm", "--set", "count.engine=spark"), "does not count"),
        (("classify", "--set", "count.engine=spark"), "count.engine does not apply to classify"),
        (("lm", "--set", "count.engine=flink"), "count.engine is"),
    ]
    for arguments, message in cases:
        found = run("train", arguments[0], text, "--out", tmp_path / "m", *arguments[1:])
        assert (found.code, message in found.err) == (2, True), found.err
    assert CountConfig(conf="spark.a=b, spark.c=d=e").spark_settings() == {"spark.a": "b", "spark.c": "d=e"}


def test_nobody_imports_spark_who_does_not_ask_for_it() -> None:
    program = "import sys; from elman.cli.app import run; run(['train', '--help']); sys.exit('pyspark' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120, check=False).returncode == 0
    )
