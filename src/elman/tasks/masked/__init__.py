"""Masked language models: tokens restored from both sides."""
