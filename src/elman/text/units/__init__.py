"""Tokenizers for each kind of units (space, word, char, byte, bpe): splitters, vocabulary, tokenizer.json, decoding."""
