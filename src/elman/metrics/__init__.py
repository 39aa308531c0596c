"""How good answers are, by the numbers their fields use. Knows nothing of models."""
