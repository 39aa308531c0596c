"""Answers to questions about short texts: chosen, marked in the text, or written."""
