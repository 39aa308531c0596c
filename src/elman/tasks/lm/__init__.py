"""Language models: counting families, nets, mixtures."""
