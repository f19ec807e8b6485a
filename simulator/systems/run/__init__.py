"""A training run: weeks of steps with failures, checkpoints, stragglers, and how workers keep in step."""
