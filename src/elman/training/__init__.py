"""Nets are trained here: one loop, its optimisers and schedules, time budgets, checkpoints, a guard against NaN."""
