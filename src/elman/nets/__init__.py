"""Parts that learn: cells, stacks of them, embeddings, output heads. Whole models are put together in `models`."""
