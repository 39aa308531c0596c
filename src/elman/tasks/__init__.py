"""Tasks, one folder each: how their data becomes a net, how it is trained, and what the trained model does."""
