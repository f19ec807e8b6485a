"""A training step run for real: every op of its Program on real tensors, and its gradients held against one process's.

`binding` reads a Program in the order in which it was issued and says of each op which values it takes and gives; the
other files say what is done with them: `forward` and `backward` by the op's label, with `kernels` and `exchanges`;
`sharing` and `context` for attention over shared sequences; `weights` and `states`, what a rank holds, gathers, reduces
and updates; `offload`, what lies on the host meanwhile. `reference` is the same step in one process, by autograd, and
`checking` compares the two; `step` is one rank from its plan to what it measured.
"""
