"""A forward and a backward language model that share their words."""
