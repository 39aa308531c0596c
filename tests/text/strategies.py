"""Texts to try things on."""

from __future__ import annotations

from hypothesis import strategies as st

from elman.text.corpus import learn
from elman.text.settings import DataConfig
from elman.text.units.tokenizer import Tokenizer

UNITS = ["space", "word", "char", "byte", "bpe:300"]

# Characters that splitting rules care about, among them four kinds of space, the space mark, marks, digits, symbols.
_PICKED = " \t\x0b\x1c\x85\u00a0\u3000\u2028\u2581\r'’-_.,<>/sunkabAB019\u0301é漢🙂½²\u200d\ufeff"
_characters = st.characters(exclude_categories=["Cs"], exclude_characters="\n\0")

# One line of text without its end, and without the two reserved symbols.
lines = st.one_of(st.text(st.sampled_from(_PICKED), max_size=40), st.text(_characters, max_size=20)).filter(
    lambda line: "<s>" not in line and "</s>" not in line
)
TEXT = """The quick brown fox -- it's quick -- doesn't jump over the lazy dog's back.
  An indented line,  two spaces; a tab\there.\u0020
“Quotes” and naïve café, 漢字かな交じり文, 3.14 and 1,000; 🙂🙂 e\u0301te\u0301

a b c a b a
"""


def tokenizer_of(directory, units: str, text: str = TEXT, **settings: object) -> Tokenizer:
    """A tokenizer learnt from a text."""
    path = directory / "text.txt"
    path.write_bytes(text.encode())
    data = DataConfig.model_validate({"units": units, "min_count": 1, **settings})
    return learn([path], data, heldout=False).tokenizer
