"""N-best lists of a speech recogniser, an OCR or a translation system, ranked again with the help of a language model."""
