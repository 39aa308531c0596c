"""A tag for every word of a sentence."""
