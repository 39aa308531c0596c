"""Nets descend here: one loop, its optimisers and schedules, time budgets, checkpoints, and a guard against NaN."""
