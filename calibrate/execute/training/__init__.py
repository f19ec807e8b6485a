"""A training step run for real: every op of its Program on real tensors, and its gradients held against one process's.

`binding` reads a Program in the order in which it was issued and says of each op which values it takes and gives; the
other files say what is done with them: `weights` (what a rank holds), `kernels`, `exchanges`, `gradients` (what is
reduced), `reference` (the same step in one process, by autograd), `step` (one rank from its plan to what it measured).
"""
