"""The command line, and small models to use it on."""

from tests.commands import corpus, cut_short, model, run, stream_model

__all__ = ["corpus", "cut_short", "model", "run", "stream_model"]
