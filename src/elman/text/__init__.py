"""Symbols in, ids out: readers of every data format, corpora, batches, rows. Knows nothing of models."""
