"""Language models and sequence models from counts to attention, on your own sequences and your own machine."""

__version__ = "0.1.0"
