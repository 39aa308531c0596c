"""N-best lists are recognised in every layout, and what is wrong with a file is said with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from elman.core.errors import DataError, MissingError
from elman.rescore.nbest import NBest, read_lists, read_references
from elman.text.settings import ReadingConfig

DATA = ReadingConfig()


def read(path: Path, **options: float) -> list[NBest]:
    return list(read_lists(str(path), DATA, **options))  # type: ignore[arg-type]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def texts(lists: list[NBest]) -> list[tuple[str, list[tuple[float, str]]]]:
    return [(one.id, [(row.score, row.text) for row in one.hypotheses]) for one in lists]


EXPECTED = [("u1", [(-1.5, "a cat"), (-2.0, "a cap")]), ("u2", [(-0.5, "")])]
TSV = "u1\t-1.5\ta cat\nu1\t-2\ta cap\n\nu2\t-0.5\t\n"


def test_tab_separated_lines(tmp_path: Path) -> None:
    found = read(write(tmp_path / "n.tsv", TSV))
    assert texts(found) == EXPECTED
    assert found[0].hypotheses[1].place == f"line 2 of {tmp_path / 'n.tsv'}"
    assert found[0].layout.write(found[0].hypotheses[0], -7.0, -9.0) == "u1\t-7.000000\ta cat"


def test_costs_are_turned_round(tmp_path: Path) -> None:
    found = read(write(tmp_path / "n.tsv", TSV.replace("-", "")), are_costs=True)
    assert texts(found) == EXPECTED


def test_what_predict_prints(tmp_path: Path) -> None:
    found = read(write(tmp_path / "n.tsv", "1\ta cat\t1.5\n1\t5\t2\n2\t\t0.5\n"))
    assert texts(found) == [("1", [(-1.5, "a cat"), (-2.0, "5")]), ("2", [(-0.5, "")])]
    assert found[0].layout.write(found[0].hypotheses[0], -7.0, -9.0) == "1\ta cat\t7.000000"


def test_what_moses_and_marian_print(tmp_path: Path) -> None:
    lines = ["u1 ||| a cat ||| F0= -1 ||| -1.5", "u1 ||| a cap ||| F0= -2 ||| -2", "u2 |||  ||| F0= 0 ||| -0.5"]
    found = read(write(tmp_path / "n", "\n".join(lines)))
    assert texts(found) == EXPECTED
    line = found[0].layout.write(found[0].hypotheses[0], -7.0, -9.0)
    assert line == "u1 ||| a cat ||| F0= -1 elman= -9.000000 ||| -7.000000"


def test_kaldi_archives(tmp_path: Path) -> None:
    for number, keys in ((2, ["u2-1"]), (10, ["u3-1"]), (1, ["u1-1", "u1-2"])):
        folder = tmp_path / f"archives.{number}"
        write(folder / "words_text", "".join(f"{key} a cat\n" for key in keys))
        write(folder / "acwt", "".join(f"{key} 10\n" for key in keys))
        write(folder / "lmwt.nolm", "".join(f"{key} 99\n" for key in keys))
        write(folder / "lmwt.withlm", "".join(f"{key} {key[-1]}\n" for key in keys))
    found = read(tmp_path, acoustic_scale=0.5)
    assert texts(found) == [
        ("u1", [(-6.0, "a cat"), (-7.0, "a cat")]),
        ("u2", [(-6.0, "a cat")]),
        ("u3", [(-6.0, "a cat")]),
    ]
    assert found[0].layout.write(found[0].hypotheses[1], 0.0, 0.0) == "u1-2 a cat"
    write(tmp_path / "archives.2" / "acwt", "u9-1 10\n")
    with pytest.raises(DataError, match=r"line 1 of .*words_text has the key 'u2-1'; line 1 of .*has 'u2-1'"):
        read(tmp_path)


def test_espnet_folders(tmp_path: Path) -> None:
    write(tmp_path / "1best_recog" / "text", "u1 a cat\nu2\n")
    write(tmp_path / "1best_recog" / "score", "u1 tensor(-1.5000)\nu2 tensor(-0.5, device='cuda:0')\n")
    write(tmp_path / "2best_recog" / "text", "u1 a cap\n")
    write(tmp_path / "2best_recog" / "score", "u1 -2.0\n")
    assert texts(read(tmp_path)) == EXPECTED
    write(tmp_path / "2best_recog" / "score", "u1 tensor(nan)\n")
    with pytest.raises(DataError, match=r"line 1 of .*score has the score 'tensor\(nan\)'"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("u3\t-1\ta\tb", "line 5 of .* has 4 columns, expected 3"),
        ("u3", "line 5 of .* has 1 column, expected 3"),
        ("u3\tlow\ta b", "line 5 of .* has the score 'low'"),
        ("u3\tnan\ta b", "line 5 of .* has the score 'nan'"),
        ("u1\t-1\ta b", "line 5 of .* goes on with list 'u1', which had ended"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, what: str) -> None:
    with pytest.raises(DataError, match=what) as failure:
        read(write(tmp_path / "n.tsv", f"{TSV}{line}\n"))
    assert failure.value.hint


def test_bad_lines_can_be_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path / "n.tsv", f"{TSV}u3\tlow\ta b\n")
    assert texts(list(read_lists(str(path), DATA.reading("skip")))) == EXPECTED


def test_a_directory_without_lists_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no n-best lists in the directory"):
        read(tmp_path)


def test_references_by_tab_or_by_space(tmp_path: Path) -> None:
    path = write(tmp_path / "r", "u1\ta cat\nu2 a dog\nu3\n")
    assert read_references(str(path), DATA) == {"u1": "a cat", "u2": "a dog", "u3": ""}
    write(path, "u1\ta cat\nu1\ta dog\n")
    with pytest.raises(DataError, match=r"line 2 of .* has another text for 'u1'"):
        read_references(str(path), DATA)
