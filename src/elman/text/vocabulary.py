"""The symbols a model knows, by number. The first two numbers are the same everywhere."""

from __future__ import annotations

UNK = "<unk>"
EOS = "</s>"
BOS = "<s>"  # never a token: models keep their start symbol inside, no caller sees it
UNK_ID = 0
EOS_ID = 1
