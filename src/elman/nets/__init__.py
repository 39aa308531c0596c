"""Neural modules: recurrent cells and stacks, attention, embeddings, output heads, and base classes of whole nets."""
