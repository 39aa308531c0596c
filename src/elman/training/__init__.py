"""Training of nets: the loop, optimisers and schedules, time budgets, checkpoints, a guard against NaN."""
