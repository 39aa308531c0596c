"""Counting and scoring on a real, local Spark: the local engine's tables, entry by entry."""

from __future__ import annotations

import gc
import gzip
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elman.api import load_language_model
from elman.counts.scratch import Scratch
from elman.counts.smoothing import tuned_weights
from elman.spark.config import CountConfig
from elman.spark.counting import Levels, count_levels
from elman.spark.estimate import Estimate
from elman.spark.lines import open_lines, survey_lines
from elman.spark.packing import Packing
from elman.spark.session import session
from elman.spark.smoothing import choose_sharing, count_tables, discount, smoothed_tables
from elman.spark.tables import collect_counts, collect_model
from elman.spark.tuning import counts_for
from elman.spark.vocabulary import learn_vocabulary
from elman.text.settings import DataConfig
from tests.commands import Run
from tests.counts.fitting import kneser_ney, smoothed

pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java, which Spark needs"),
    pytest.mark.filterwarnings("default"),
]
SPARK = ("--set", "count.engine=spark")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """One session, which the commands find running."""
    pyspark_sql = pytest.importorskip("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.files.minPartitionNum": "3",  # several blocks even of a small file
        "spark.driver.maxResultSize": "0",
        # for rows so few, compiling a query takes longer than running it
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    builder = pyspark_sql.SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    gc.collect()  # Spark's client leaves connections to the collector: here, not in a test to come


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text of short and long lines and blank ones, one compressed, with words outside of ASCII."""
    rng = random.Random(5)
    words = [*"abcdefgh", "né", "日本", "-", "x\u00a0y"]
    weights = [1 / (i + 1) for i in range(len(words))]
    lines = [" ".join(rng.choices(words, weights, k=rng.choice((0, 1, 2, 5, 9)))) for _ in range(260)]
    lines += [f"rare{i} a b" for i in range(9)]
    folder = tmp_path_factory.mktemp("texts")
    (folder / "1 one.txt").write_text("\ufeff" + "\n".join(lines[:200]), encoding="utf-8")
    (folder / "2.txt.gz").write_bytes(gzip.compress(("\r\n".join(lines[200:]) + "\n").encode()))
    return folder


def tensors(directory: Path) -> dict[str, Any]:
    found = dict(load_language_model(directory).tensors())
    assert found
    return found


def assert_same(local: Path, spark: Path) -> None:
    """Vocabulary, tables and numbers are equal, to the bit."""
    first, second = load_language_model(local), load_language_model(spark)
    assert list(first.tokenizer.tokens) == list(second.tokenizer.tokens)
    expected, found = tensors(local), tensors(spark)
    assert expected.keys() == found.keys()
    for name, table in expected.items():
        assert np.array_equal(table, found[name]), name
    assert first.record.valid == second.record.valid
    assert first.record.source is not None and second.record.source is not None
    numbers = {"lines", "tokens", "bytes"}
    assert first.record.source.model_dump(include=numbers) == second.record.source.model_dump(include=numbers)
    assert first.files().keys() == second.files().keys()
    assert first.files()["spelling.safetensors"] == second.files()["spelling.safetensors"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--model", "mkn", "--set", "model.order=4", "--units", "space"),
        ("--model", "bigram", "--reset-lines", "--valid", "none", "--set", "data.min_count=1"),
    ],
    ids=["mkn", "add"],
)
def test_a_model_directory_is_that_of_the_local_engine(
    run: Run, spark: Any, texts: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """From files to tables and numbers; the second one tunes on the end of its text with the counts of the rest."""
    local = run("train", "lm", texts, "--out", tmp_path / "local", *arguments)
    found = run("train", "lm", texts, "--out", tmp_path / "spark", *arguments, *SPARK)
    assert (local.code, found.code) == (0, 0), found.err
    assert_same(tmp_path / "local", tmp_path / "spark")
    # what is said is the same, too: units, what is held out, discounts and weights
    said = [line for line in found.err.splitlines() if "Apache Spark" not in line and "saved in" not in line]
    assert {line for line in local.err.splitlines() if "saved in" not in line} >= set(said)


METHODS = {
    False: [("mkn", (0, 0, 1)), ("interpolated", (0, 1)), ("ml", ())],
    True: [("kn", ()), ("witten-bell", (0, 1)), ("absolute", (0, 1))],
}


@pytest.mark.parametrize("reset_lines", [False, True], ids=["stream", "lines"])
def test_every_smoothing_has_the_tables_of_the_local_engine(spark: Any, texts: Path, reset_lines: bool) -> None:
    """Every method, most of them pruned, from one counting of a stream and one of lines."""
    order, data = 3, DataConfig(units="word", reset_lines=reset_lines, max_words=9)
    lines = open_lines(spark, [texts])
    text = survey_lines(lines, data, "word", head_tokens=order - 1)
    vocabulary = learn_vocabulary(lines.frame, text.part(0, 250))
    tokenizer = vocabulary.tokenizer
    levels = count_levels(text, 250, tokenizer, order=order, reset_lines=reset_lines, continuations=True)
    ids = tokenizer.encode_lines(b"".join(text.texts(0, 250)))
    heldout = tokenizer.encode_lines(b"".join(text.texts(250, text.num_lines)))
    assert len(ids) == levels.num_tokens
    assert int(np.count_nonzero(heldout == 1)) == text.num_lines - 250
    shape = {"order": order, "vocab_size": tokenizer.vocab_size, "reset_lines": reset_lines}
    for method, prune in METHODS[reset_lines]:
        estimate = Estimate(method, order, prune)
        expected_notes: list[str] = []
        notes: list[str] = []
        with Scratch() as scratch:
            if estimate.continues:
                modified = method == "mkn"
                options = {"modified": modified, "prune": prune, "report": expected_notes.append}
                expected = kneser_ney(ids, scratch=scratch, **shape, **options)
            else:
                options = {"smoothing": method, "prune": prune, "heldout_ids": heldout, "report": expected_notes.append}
                expected = smoothed(ids, scratch=scratch, **shape, **options)
        if estimate.backs_off:
            weights = tuned_weights(counts_for(levels, heldout), heldout, notes.append) if estimate.tunes else None
            sharing = choose_sharing(levels, estimate, weights, notes.append)
            found = collect_model(smoothed_tables(levels, estimate, sharing))
        else:
            found = collect_counts(count_tables(levels), alpha=0.0)
        assert notes == expected_notes
        assert expected.tensors().keys() == found.tensors().keys()
        for name, table in expected.tensors().items():
            assert np.array_equal(table, found.tensors()[name]), (method, name)


def test_tables_of_ngrams_are_joined_by_sorting_never_broadcast(spark: Any) -> None:
    """Spark broadcast tables up to 10 MB to every executor, in memory that cannot be spilled: texts ten times it failed."""
    ngrams = spark.createDataFrame([(0, 2, 1, 0), (0, 3, 2, 0), (1, 2, 3, 0)], "p0 long, w int, n long, c long")
    levels = Levels(Packing(4), 2, False, (ngrams,), np.array([0, 1, 4, 2, 0]), np.array([0, 0, 2, 1, 0]))
    with session(CountConfig(engine="spark")):
        tables = smoothed_tables(levels, Estimate("kn", 2), discount([(0.5, 0.5, 0.5)] * 2))
    plan = tables.frames[0]._jdf.queryExecution().executedPlan().toString()
    assert ("SortMergeJoin" in plan, "BroadcastHashJoin" in plan) == (True, False), plan
    assert tables.sizes == (5, 3)


def test_a_model_that_is_too_large_is_written_as_arpa_in_parts(
    run: Run, spark: Any, texts: Path, tmp_path: Path
) -> None:
    arguments = ("train", "lm", texts, "--reset-lines", "--units", "space", "--set", "model.order=3")
    assert run(*arguments, "--out", tmp_path / "local").code == 0
    parts = tmp_path / "parts"
    found = run(*arguments, "--out", parts, *SPARK, "--set", "count.result=arpa")
    assert found.code == 0, found.err
    whole = b"".join(path.read_bytes() for path in sorted(parts.glob("part-*")))
    (tmp_path / "model.arpa").write_bytes(whole)
    assert run("import", tmp_path / "model.arpa", "--out", tmp_path / "imported").code == 0
    expected, imported = tensors(tmp_path / "local"), tensors(tmp_path / "imported")
    numbers = [run("evaluate", tmp_path / name, texts, "--json").json["perplexity"] for name in ("local", "imported")]
    assert numbers[1] == pytest.approx(numbers[0], rel=1e-7)
    assert sum(map(np.size, imported.values())) == sum(map(np.size, expected.values()))
    assert run(*arguments, "--out", parts, *SPARK, "--set", "count.result=arpa").code == 74
    stream = run("train", "lm", texts, "--out", tmp_path / "s", *SPARK, "--set", "count.result=arpa")
    assert (stream.code, "--reset-lines" in stream.err) == (2, True)


def test_a_parquet_file_is_read_by_its_column_text(run: Run, spark: Any, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rows = ["a b a", "b a\nc a b", "", "a b c"]
    parquet.write_table(pa.table({"text": rows, "other": [1, 2, 3, 4]}), tmp_path / "rows.parquet")
    (tmp_path / "rows.txt").write_text("\n".join(rows) + "\n")
    arguments = (
        "--model",
        "kn",
        "--units",
        "space",
        "--set",
        "data.min_count=1",
        "--set",
        "model.order=2",
        "--valid",
        "none",
    )
    assert run("train", "lm", tmp_path / "rows.txt", "--out", tmp_path / "local", *arguments).code == 0
    found = run("train", "lm", tmp_path / "rows.parquet", "--out", tmp_path / "spark", *arguments, *SPARK)
    assert found.code == 0, found.err
    assert_same(tmp_path / "local", tmp_path / "spark")
    parquet.write_table(pa.table({"other": [1]}), tmp_path / "none.parquet")
    none = run("train", "lm", tmp_path / "none.parquet", "--out", tmp_path / "n", *SPARK)
    assert (none.code, "no column text" in none.err) == (65, True)


def test_scores_are_those_of_the_local_engine_a_line_for_a_line(
    run: Run, spark: Any, texts: Path, tmp_path: Path
) -> None:
    model = tmp_path / "m"
    assert run("train", "lm", texts, "--out", model, "--units", "space").code == 0
    source, out = texts / "1 one.txt", tmp_path / "out"
    expected = run("score", model, source, "--text").out
    found = run("score", "--engine", "spark", model, source, out, "--text")
    assert found.code == 0, found.err
    parts = sorted(out.glob("part-*"))
    assert "".join(path.read_text(encoding="utf-8") for path in parts) == expected
    assert "200 lines scored" in found.err
    again = run("score", "--engine", "spark", model, source, out)
    assert (again.code, "is there already" in again.err) == (74, True)
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"a b\n" * 900 + b"a \xff\n" + b"b a\n" * 900)
    refused = run("score", "--engine", "spark", model, bad, tmp_path / "refused")
    assert (refused.code, "line 901 of" in refused.err) == (65, True)
    assert not (tmp_path / "refused").exists()
    skipped = run("score", "--engine", "spark", model, bad, tmp_path / "skipped", "--errors", "skip", "--json")
    assert skipped.code == 0, skipped.err
    lines = "".join(path.read_text() for path in sorted((tmp_path / "skipped").glob("part-*"))).splitlines()
    assert (len(lines), '"nats": null' in lines[900]) == (1801, True)


def test_bad_input_is_an_error_with_a_hint_and_leaves_nothing(
    run: Run, spark: Any, texts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m"
    empty = tmp_path / "empty"
    empty.mkdir()
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"a b\n" * 700 + "Stra\xdfe\n".encode("latin-1") + b"a\n" * 700)
    mixed = tmp_path / "mixed.txt"
    mixed.write_bytes("\ufeffa b\n".encode("utf-16-le"))
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n')
    cases = [
        (empty, (), 66, "no files"),
        (tmp_path / "nowhere", (), 66, "nowhere"),
        (bad, (), 65, "line 701 of"),
        (mixed, (), 65, "UTF-16"),
        (tmp_path / "x.jsonl", (), 2, "lines of text and Parquet"),
        (texts, ("--model", "snm"), 2, "does not count snm"),
        (texts, ("--units", "byte"), 2, "byte units"),
        (texts, ("--set", "data.index=true"), 2, "data.index"),
        (texts, ("--set", "count.master=local[7]"), 2, "is running here already"),
        (texts, ("--set", "count.result=model", "--set", "count.conf=x"), 2, "no setting of Spark"),
    ]
    for source, arguments, code, message in cases:
        found = run("train", "lm", source, "--out", out, *arguments, *SPARK)
        assert (found.code, message in found.err, "Traceback" in found.err) == (code, True, False), found.err
        assert not out.exists()


def test_a_bad_line_can_be_dropped_and_is_counted(run: Run, spark: Any, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"a b c\n" * 600 + b"\xff\n" + b"a c b\n" * 600 + b"x </s>\n" + b"b b\n" * 20)
    arguments = ("--set", "data.skip_bad=true", "--set", "model.order=2", "--units", "space")
    assert run("train", "lm", bad, "--out", tmp_path / "local", *arguments).code == 0
    found = run("train", "lm", bad, "--out", tmp_path / "spark", *arguments, *SPARK)
    assert found.code == 0, found.err
    assert "2 bad lines were dropped" in found.err
    assert_same(tmp_path / "local", tmp_path / "spark")
