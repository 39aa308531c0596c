"""What we use of sacrebleu's private functions: where they change, this says so before numbers do."""

from __future__ import annotations

import sacrebleu
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from elman.tasks.seq2seq.metrics import SacrebleuMetric

TEXTS = ["the cat sat on the mat", "a dog ran home"]
REFERENCES = [["the cat sat on a mat", "the cat was on the mat"], ["the dog ran home", "a dog went home"]]
BROKEN = (
    f"sacrebleu {sacrebleu.__version__} has changed what elman.tasks.seq2seq.metrics.SacrebleuMetric uses: "
    "_extract_corpus_statistics and _aggregate_and_compute"
)


def test_statistics_of_single_texts_add_up_to_the_score_of_the_corpus() -> None:
    for metric in (BLEU(force=True), CHRF()):
        assert hasattr(metric, "_extract_corpus_statistics") and hasattr(metric, "_aggregate_and_compute"), BROKEN
        ours = SacrebleuMetric(metric)
        statistics = [
            one for text, references in zip(TEXTS, REFERENCES, strict=True) for one in ours.statistics(text, references)
        ]
        streams = [list(stream) for stream in zip(*REFERENCES, strict=True)]
        assert abs(ours.score(statistics) - metric.corpus_score(TEXTS, streams).score) < 1e-9, BROKEN
