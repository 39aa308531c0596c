"""Several models on one corpus by one rule, and what was found as one page."""
