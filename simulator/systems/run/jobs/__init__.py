"""A queue of jobs on a pool of GPUs."""
