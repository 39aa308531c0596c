"""Unicode forms: é is one character (NFC), or an e and an accent (NFD). To a model these are different symbols."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable
from typing import Literal, get_args

Normalize = Literal["none", "NFC", "NFKC"]  # how texts are rewritten; NFKC also makes ﬁ of two letters and ２ a plain 2
Form = Literal["NFC", "NFD"]  # what a text is in


class FormWarning(UserWarning):
    """A text is in another Unicode form than the training text was."""


def normalize(text: str, form: Normalize) -> str:
    """A text in a Unicode form."""
    return text if form == "none" or text.isascii() else unicodedata.normalize(form, text)


def normalize_bytes(lines: bytes, form: Normalize) -> bytes:
    """Lines in a Unicode form, as many as before; bytes that are no UTF-8 stay as they are."""
    if form == "none" or lines.isascii():
        return lines
    return normalize(lines.decode(errors="surrogateescape"), form).encode(errors="surrogateescape")


class FormWatch:
    """Looks at texts as they are read: in which form they are, and whether it is the one that is expected."""

    def __init__(self, expected: Form | None = None) -> None:
        self._expected = expected
        self._possible = set[Form](get_args(Form))

    def look(self, text: str, source: str) -> None:
        """Warn, once, of a text that is not in the expected form. source: where it is from"""
        if text.isascii():
            return
        self._possible = {form for form in self._possible if unicodedata.is_normalized(form, text)}
        if self._expected is not None and self._expected not in self._possible:
            expected, self._expected = self._expected, None
            warnings.warn(
                f"{source} is not in Unicode's form {expected}, as the training text was: the same letters are other"
                " symbols there (data.normalize=NFC in training reads all forms alike)",
                FormWarning,
                stacklevel=2,
            )

    @property
    def possible(self) -> frozenset[Form]:
        """The forms in which all texts may have been."""
        return frozenset(self._possible)

    @property
    def form(self) -> Form | None:
        """The one form in which all texts were; None where there was none, or they are the same in both."""
        return next(iter(self._possible)) if len(self._possible) == 1 else None


def form_of(texts: Iterable[str]) -> Form | None:
    """The one form in which all of some texts are; None where there is none, or they are the same in both."""
    watch = FormWatch()
    for text in texts:
        watch.look(text, "")
    return watch.form
