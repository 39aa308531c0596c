"""What tokens are: space, word, char, byte, bpe. Splitters, vocabulary, tokenizer.json, decoding."""
