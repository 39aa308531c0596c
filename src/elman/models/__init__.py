"""Whole nets, each a `FreeModel` for those who use it and a `Trainable` for the one who trains it."""
