"""Models that count. Nothing here imports torch."""
