"""Training as a process: rounds, checkpoints, failures, input, and the nodes that are there."""
