"""Files of facts in the form of LAMA (Petroni et al. 2019), and how well gaps are filled in them.

JSONL, an object a fact: `obj_label`, and `masked_sentences` (or `evidences` with a `masked_sentence` each), or a `sub_label`
for a template; the relation is `predicate_id` or `pred`. Or a table without a header: relation, subject, object, sentence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.core.settings import make
from elman.text.gaps import MASK, has_gap, same_mask
from elman.text.readers import Reader
from elman.text.settings import ReadingConfig

COLUMNS = ("relation", "subject", "object", "sentence with [MASK]")
TEMPLATE_COLUMNS = ("relation", "template with [X] and [Y]")


@dataclass(frozen=True)
class Fact:
    """What should stand in the gap of a sentence; the sentence is empty where there is none with a gap."""

    relation: str
    object: str
    sentence: str


def read_facts(path: Path, templates: Path | None = None) -> list[Fact]:
    """The facts of a file, each with its first sentence, or with the sentence that a template of its relation makes."""
    forms = _read_templates(templates) if templates is not None else None
    rows = _json_rows(path) if _is_json(path) else _table_rows(path)
    facts = []
    for relation, subject, answer, sentence in rows:
        if forms is not None:
            form, _ = forms.get(relation, ("", ""))
            sentence = form.replace("[X]", subject).replace("[Y]", MASK) if subject else ""
        facts.append(Fact(relation, answer, same_mask(sentence) if has_gap(sentence) else ""))
    if not facts:
        raise DataError(f"{path} holds no facts", code="empty-data", hint="an empty file")
    return facts


def relation_names(templates: Path) -> dict[str, str]:
    """What relations are called (P19: place of birth), as far as a file of templates says it: `label`, or a third column."""
    return {relation: name for relation, (_, name) in _read_templates(templates).items() if name}


def summary(ranks: Array) -> dict[str, Any]:
    """Of the ranks of right answers: share at the first place, among the first ten, and the mean of 1 / rank."""
    return {
        "facts": len(ranks),
        "p_at_1": float((ranks == 1).mean()) if len(ranks) else None,
        "p_at_10": float((ranks <= 10).mean()) if len(ranks) else None,
        "mrr": float((1 / ranks).mean()) if len(ranks) else None,
    }


def by_relation(facts: Sequence[Fact], ranks: Array) -> dict[str, Any]:
    """`summary` over all facts, and of each relation by itself."""
    relations = np.array([fact.relation for fact in facts], dtype=object)
    names = sorted({fact.relation for fact in facts})
    return summary(ranks) | {"relations": {name: summary(ranks[relations == name]) for name in names}}


def _is_json(path: Path) -> bool:
    """By its first line that is not blank."""
    return next((line.lstrip().startswith("{") for _, line in _lines(path)), False)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, and their numbers."""
    for block in Reader([path], make(ReadingConfig, {}, section="data"), keep_records=True, header=False).blocks():
        for index, line in enumerate(block.split()):
            if line.strip():
                yield block.number(index), line.decode()


def _table_rows(path: Path) -> Iterator[tuple[str, ...]]:
    for number, line in _lines(path):
        cells = line.split("\t")
        if len(cells) != len(COLUMNS):
            raise _other_columns(path, number, cells, COLUMNS)
        if number == 1 and not has_gap(cells[-1]):  # its columns, or their names, are others
            raise _other_columns(path, number, cells, COLUMNS)
        yield tuple(cells)


def _json_rows(path: Path) -> Iterator[tuple[str, ...]]:
    for number, line in _lines(path):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"line {number} of {path} is not JSON: {error}", code="malformed-line") from None
        keys = list(row) if isinstance(row, dict) else []
        if "obj_label" not in keys or not {"masked_sentences", "evidences", "sub_label"} & set(keys):
            names = ", ".join(keys) or "none"
            raise DataError(
                f"line {number} of {path} has other keys than a fact: {names}",
                code="malformed-line",
                hint="it needs obj_label and masked_sentences, as LAMA's files have them",
            )
        sentences = row.get("masked_sentences") or [
            one.get("masked_sentence", "") for one in row.get("evidences") or () if isinstance(one, dict)
        ]
        sentence = next((one for one in sentences if isinstance(one, str) and has_gap(one)), "")
        relation = row.get("predicate_id") or row.get("pred") or path.stem
        yield str(relation), str(row.get("sub_label") or ""), str(row["obj_label"]), sentence


def _read_templates(path: Path) -> dict[str, tuple[str, str]]:
    """The template of each relation, and its name where there is one.

    From LAMA's relations.jsonl (`relation`, `template`, `label`), or from a table that begins with these columns.
    """
    found = {}
    for number, line in _lines(path):
        try:
            row = json.loads(line) if line.lstrip().startswith("{") else None
        except (ValueError, RecursionError) as error:
            raise DataError(f"line {number} of {path} is not JSON: {error}", code="malformed-line") from None
        keys = ("relation", "template", "label")
        cells = line.split("\t") if row is None else [str(row.get(key, "")) for key in keys]
        if len(cells) < 2 or "[Y]" not in cells[1]:
            raise _other_columns(path, number, cells if row is None else list(row), TEMPLATE_COLUMNS)
        found[cells[0]] = (cells[1], cells[2].strip() if len(cells) > 2 else "")
    return found


def _other_columns(path: Path, number: int, cells: Sequence[str], wanted: Sequence[str]) -> DataError:
    names = ", ".join(repr(cell[:40]) for cell in cells)
    return DataError(
        f"line {number} of {path} has other columns ({len(cells)}): {names}",
        code="malformed-line",
        hint=f"its columns are {', '.join(wanted)}, with tabs between; or JSONL as LAMA has it",
    )
