"""Encoder and decoder: a source is read, a target is written."""
