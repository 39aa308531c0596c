"""The language model protocol and its states; decoding, evaluation and mixtures, written over states alone."""
