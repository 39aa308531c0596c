"""A Spark to work with: found, started and stopped, and its failures told in words."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from elman.core.errors import ElmanError, MissingError, UsageError, WriteError
from elman.spark.config import CountConfig

JAVA = 17  # the oldest that Spark 4 runs on
CONNECT_SECONDS = 10.0  # to wait for a master's door
BATCH_ROWS = 30_000  # lines or n-grams that go to Python and back at once
PARTITION_BYTES = 4 << 20  # of text whose n-grams are one partition; they take some ten times as much
SETTINGS = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # a sort spills to disk, a broadcast table does not
    "spark.memory.storageFraction": "0",  # tables are kept on disk: memory is for sorting
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.maxResultSize": "0",  # tables come a piece at a time; Spark's own limit is for all of them
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
}
LOGGING = """rootLogger.level = fatal
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""


@contextlib.contextmanager
def session(config: CountConfig, *, threads: int | None = None) -> Iterator[Any]:
    """A SparkSession, stopped at the end; one that is running already is used as it is, and left running."""
    SparkSession = _import_pyspark()
    running = SparkSession.getActiveSession()
    if running is not None:
        _adopt(running, config)
        with translated():
            yield running
        return
    _check_java()
    master = config.master or f"local[{threads or '*'}]"
    _check_master(master)
    with tempfile.TemporaryDirectory(prefix="elman-spark-") as folder:
        spark = _start(SparkSession, master, config, Path(folder))
        try:
            if not master.startswith("local["):
                _wait_for_executors(spark, config.wait, master)
            _fix_blocks(spark)
            with translated():
                yield spark
        finally:
            _stop(spark)


def _stop(spark: Any) -> None:
    """A signal to all of a group ends Java, too: that it is gone must not hide why we stop."""
    from py4j.protocol import Py4JError

    logging.disable(logging.ERROR)  # py4j logs a traceback for a Java that is gone
    try:
        with contextlib.suppress(Py4JError, OSError):
            spark.stop()
    finally:
        logging.disable(logging.NOTSET)


def _adopt(running: Any, config: CountConfig) -> None:
    """Let a session that somebody else has started read and count as ours do."""
    master = running.sparkContext.master
    if config.conf or config.master not in (None, master):
        raise UsageError(
            f"a Spark is running here already, on {master}",
            code="spark-failed",
            hint="stop it, or leave count.master and count.conf out",
        )
    for key, value in SETTINGS.items():
        if key.startswith("spark.sql."):
            running.conf.set(key, value)
    _fix_blocks(running)


def _fix_blocks(spark: Any) -> None:
    """Cut files into blocks alike from job to job, however many executors have come by then."""
    key = "spark.sql.files.minPartitionNum"
    if spark.conf.get(key, None) is None:
        spark.conf.set(key, str(2 * spark.sparkContext.defaultParallelism))


def fit_partitions(spark: Any, num_bytes: int) -> None:
    """Choose the number of partitions of tables by the size of the text, unless somebody has."""
    key, usual = "spark.sql.shuffle.partitions", "200"
    if spark.conf.get(key) == usual:
        spark.conf.set(key, str(max(2 * spark.sparkContext.defaultParallelism, -(-num_bytes // PARTITION_BYTES))))


def _import_pyspark() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise UsageError(
            "the engine spark needs PySpark", code="missing-package", hint="pip install 'elman[scale]'"
        ) from None
    return SparkSession


def _check_java() -> None:
    """Spark would say it in twenty lines."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    hint = f"install Java {JAVA} (Debian: openjdk-{JAVA}-jre-headless), or set JAVA_HOME to where it is"
    if java is None or not Path(java).exists():
        raise MissingError(
            f"Spark needs Java, and there is none{f' in {home}' if home else ''}", code="missing-package", hint=hint
        )
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(f"{java} does not run: {error}", code="missing-package", hint=hint) from None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if found is None:
        raise MissingError(f"{java} -version does not say which Java it is", code="missing-package", hint=hint)
    if int(found[1]) < JAVA:
        raise UsageError(
            f"{java} is Java {found[1]}, and Spark 4 needs {JAVA} or newer", code="missing-package", hint=hint
        )


def _check_master(master: str) -> None:
    """Refuse what is no master, and one of Spark's own whose door stays shut."""
    if not re.match(r"local($|\[)|local-cluster\[|spark://|yarn$|k8s://", master):
        raise UsageError(
            f"count.master={master} is no master of Spark",
            code="bad-value",
            hint="like local[2], spark://host:7077, yarn or k8s://…",
        )
    if not master.startswith("spark://"):
        return
    problems = []
    for one in master.removeprefix("spark://").split(","):
        address = urlsplit(f"//{one}")
        try:
            socket.create_connection((address.hostname or "", address.port or 7077), CONNECT_SECONDS).close()
            return
        except (OSError, ValueError) as error:
            problems.append(f"{one}: {error}")
    raise ElmanError(
        f"the master {master} does not answer ({'; '.join(problems)})",
        code="spark-failed",
        hint="is it running there, and may this machine connect to it?",
    )


def _start(SparkSession: Any, master: str, config: CountConfig, folder: Path) -> Any:
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING)
    settings = {
        **SETTINGS,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
        **config.spark_settings(),
    }
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # all is in one process: with Spark's own 1 GB, 5 M tokens of order 5 ran out of memory
        quarter = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 22
        settings.setdefault("spark.driver.memory", f"{max(1024, quarter)}m")
        settings.setdefault("spark.local.dir", str(folder))  # in TMPDIR, and gone with all else; Spark's own is /tmp
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # a machine that has lost its network counts, too
    if "spark.pyspark.python" in settings:
        os.environ["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
    builder = SparkSession.builder.master(master).appName("elman")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with translated():
        return builder.getOrCreate()


def _wait_for_executors(spark: Any, seconds: float, master: str) -> None:
    """A job of one row must end in time; Spark itself would wait for ever."""
    done: list[int] = []
    job = threading.Thread(target=lambda: done.append(spark.range(1).count()), daemon=True)
    job.start()
    job.join(seconds)
    if not done:
        spark.sparkContext.cancelAllJobs()
        raise ElmanError(
            f"{master} has given no executor in {seconds:g} s",
            code="spark-failed",
            hint="has it a free worker with that much memory and cores? count.wait waits longer",
        )


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """What goes wrong inside Spark, as an error with a hint."""
    try:
        yield
    except ElmanError:
        raise
    except Exception as error:
        found = _translation(error)
        if found is None:
            raise
        if os.environ.get("ELMAN_DEBUG"):
            print(error, file=sys.stderr)
        raise found from None


def _translation(error: Exception) -> ElmanError | None:
    """What an exception of Spark, or of the bridge to it, means; None for those of others."""
    if not type(error).__module__.startswith(("pyspark", "py4j")):
        return None
    text = str(error)
    if "No space left on device" in text:
        return WriteError(
            "Spark has no space left for what it shuffles",
            code="disk-full",
            hint="free space, or give it another disk: --set count.conf=spark.local.dir=/large",
        )
    if found := re.search(r"Path does not exist: (.*?)(?:\. SQLSTATE|\n|$)", text):
        return MissingError(f"there is no {found[1]}", hint="is the name right, and may you read it?")
    if "OutOfMemoryError" in text:
        return ElmanError(
            "an executor of Spark ran out of memory",
            code="out-of-memory",
            hint="--set count.conf=spark.executor.memory=8g (spark.driver.memory with a local master), or more partitions:"
            " spark.sql.shuffle.partitions=1000",
        )
    if "stopped SparkContext" in text or "SparkPlan.session()" in text:  # the second: stopped while it planned
        return ElmanError(
            "Spark has stopped: its master does not answer, or has ended this run, or its own memory is full",
            code="spark-failed",
            hint="is it a master of Spark 4, and do its workers live? its log says more; spark.driver.memory=8g in count.conf"
            " gives a local master more",
        )
    if found := re.search(r"ElmanError: (.*?)(?:\n|$)", text):
        return ElmanError(found[1], code="spark-failed")
    if found := re.search(r"ModuleNotFoundError: No module named '(\w+)", text):
        return ElmanError(
            f"the Python of the executors has no {found[1]}",
            code="missing-package",
            hint="install elman[scale] there, or count.conf=spark.pyspark.python=/a/python/that/has/it",
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = re.findall(r"^(?:Caused by: (.*)|([A-Za-z_.]*(?:Error|Exception): .*))$", text, re.MULTILINE)
    what = "".join(causes[-1]) if causes else (lines or [type(error).__name__])[0]
    return ElmanError(f"Spark failed: {what[:400]}", code="spark-failed", hint="ELMAN_DEBUG=1 shows all that it says")
