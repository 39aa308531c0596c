"""`AutoTokenizer.from_pretrained` of transformers loads our tokenisers: those of models, and those beside graphs."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import elman

TEXTS = ["the cat, it sat", "don't  ask", "schön ist’s — 世界", "  a\tb "]


@pytest.fixture(scope="module")
def auto_tokenizer() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import AutoTokenizer
    return AutoTokenizer


@pytest.mark.slow  # transformers takes seconds to import
@pytest.mark.parametrize("units", ["space", "word", "char", "byte", "bpe:280"])
@pytest.mark.parametrize("normalize", ["none", "NFC"])
def test_auto_tokenizer_gives_the_ids_that_we_give(
    units: str, normalize: str, auto_tokenizer: Any, tmp_path: Path
) -> None:
    settings = {"data.min_count": 1, "data.normalize": normalize}
    model = elman.train(
        "lm", elman.texts(TEXTS[:3]), valid="none", model="unigram", units=units, settings=settings, out=tmp_path / "m"
    )
    exported = tmp_path / "exported"
    exported.mkdir()
    for name, content in model.tokenizer.files().items():
        (exported / name).write_bytes(content)
    for directory in (tmp_path / "m", exported):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = auto_tokenizer.from_pretrained(directory)
        assert (found.eos_token, found.eos_token_id, found.unk_token_id) == ("</s>", 1, 0)
        assert len(found) == model.tokenizer.vocab_size
        for text in TEXTS:
            ids = model.tokenizer.encode(text).tolist()
            assert found.encode(text, add_special_tokens=False) == ids
            if 0 not in ids:  # the library writes <unk> without the space before it
                assert found.decode(ids) == model.tokenizer.decode(ids)
