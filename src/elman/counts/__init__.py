"""Count-based language models. Nothing here imports torch."""
