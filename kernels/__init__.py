"""Kernels that calibration times, each beside a torch reference. Imports nothing of ours; needs torch, not triton.

dispatch       Triton or torch, for a tensor
reload         one flattened bucket scattered into many tensors
permute        tokens into the order of their experts, and back
occupy         SMs and bandwidth held, as NCCL would hold them
quantize       fp8 with a scale per tile, or with a given one
swiglu         the gated activation of an MLP, forward and backward
rmsnorm        residual added and normed in one pass
compress       gradients into messages and back, in torch alone
cross_entropy  the loss and its gradient in one launch
compiled       their Triton kernels, imported when one runs
"""

if "." not in __name__:
    raise ImportError("import runcast.kernels, not kernels: a bare import gives different classes")
