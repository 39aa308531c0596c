"""Tags beside what they should have been: accuracy, and spans as seqeval counts them. All is from 0 to 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from elman.tasks.label_metrics import Counts, label_counts
from elman.tasks.tag.spans import find_scheme, spans_of

Rows = Sequence[Sequence[str]]
FEW = 0.1  # share of the words to be tagged below which a tagger tags almost nothing


def tag_numbers(given: Rows, wanted: Rows) -> dict[str, Any]:
    """accuracy, f1 and a report by label.

    f1 is that of whole spans, all types together, where the tags that there should be mark spans; otherwise the mean over all
    labels. The report has a line for each type of span, or for each label.
    """
    pairs = Counter(pair for row, truth in zip(given, wanted, strict=True) for pair in zip(row, truth, strict=True))
    total = sum(pairs.values())
    right = sum(count for (tag, truth), count in pairs.items() if tag == truth)
    if find_scheme(tag for _, tag in pairs) is None:
        by_label = label_counts(pairs)
        f1 = sum(counts.numbers()["f1"] for counts in by_label.values()) / max(1, len(by_label))
    else:
        by_label = span_counts(given, wanted)
        f1 = sum(by_label.values(), Counts()).numbers()["f1"]
    report = [{"label": label, **counts.numbers()} for label, counts in sorted(by_label.items())]
    return {
        "accuracy": right / total if total else 0.0,
        "f1": f1,
        "tokens": total,
        "sentences": len(wanted),
        "by_label": report,
    }


def one_tag_notes(given: Rows, wanted: Rows) -> list[str]:
    """What to say of a tagger that gives nearly all words the commonest tag: it has learned nothing yet."""
    counts = Counter(tag for row in wanted for tag in row)
    if not counts:
        return []
    commonest, most = counts.most_common(1)[0]
    num_wanted = counts.total() - most
    num_given = sum(tag != commonest for row in given for tag in row)
    if num_given >= FEW * num_wanted or num_wanted < 1 / FEW:
        return []
    found = f"{num_given:,} words were given another tag than {commonest}, and {num_wanted:,} should have been"
    return [f"it tags almost nothing: {found}; more training or more data may help"]


def span_counts(given: Rows, wanted: Rows) -> dict[str, Counts]:
    """Of every type of span: one is right if its words and its type are."""
    found: dict[str, Counts] = {}
    for row, truth in zip(given, wanted, strict=True):
        spans, true_spans = set(spans_of(row)), set(spans_of(truth))
        for span in spans | true_spans:
            one = Counts(int(span in spans and span in true_spans), int(span in spans), int(span in true_spans))
            found[span.kind] = found.get(span.kind, Counts()) + one
    return found
