"""The families of language models, one file each: its settings, what it costs, how it is made and restored."""
