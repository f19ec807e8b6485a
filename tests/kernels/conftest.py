"""Every kernel test runs twice: in Triton, compiled on CUDA or interpreted elsewhere, and in torch on the CPU.

Triton decides when it is imported whether kernels are interpreted. So it is imported here, as are the kernels, with the
variable set; afterwards it is set during these tests only, and tests elsewhere in this process see the fallback.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch
from runcast.kernels.dispatch import library_of
from torch import Tensor

INTERPRETED = not torch.cuda.is_available()
HAS_TRITON = find_spec("triton") is not None
INTERPRETER = 3, 7  # earlier ones fail on loops with numpy 2.4

with pytest.MonkeyPatch.context() as patch:
    if INTERPRETED:
        patch.setenv("TRITON_INTERPRET", "1")
    if HAS_TRITON:
        import_module("runcast.kernels.compiled")


def skip_without_triton() -> None:
    triton = pytest.importorskip("triton")
    if INTERPRETED and tuple(int(part) for part in triton.__version__.split(".")[:2]) < INTERPRETER:
        pytest.skip("needs triton 3.7 to interpret kernels, or a CUDA device")


@pytest.fixture(scope="module", params=["triton", "torch"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where tensors must lie for the library of this run. New tensors are filled with NaN or the largest integer."""
    compiled = request.param == "triton" and not INTERPRETED
    if request.param == "triton":
        skip_without_triton()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1" if request.param == "triton" and INTERPRETED else "0")
        where = "cuda" if compiled else "cpu"
        assert library_of(torch.empty(0, device=where)) == request.param
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True, warn_only=True)
        yield where
        torch.use_deterministic_algorithms(before)


@pytest.fixture(scope="module")
def interpreted(device: str) -> bool:
    """Whether kernels run in Triton's interpreter, which does not round to narrow floats as CUDA does."""
    return INTERPRETED and library_of(torch.empty(0, device=device)) == "triton"


@pytest.fixture(scope="module")
def assert_close(interpreted: bool) -> Callable[[Tensor, Tensor], None]:
    """`assert_close(result, expected)`: to what the result's dtype holds of an answer in float64.

    For bf16 that is half a step, or a whole one where the interpreter cuts.
    """
    relative = {torch.bfloat16: 2**-7 if interpreted else 2**-8 * 1.01}

    def check(result: Tensor, expected: Tensor) -> None:
        rtol = relative.get(result.dtype, 1e-5)
        torch.testing.assert_close(result.double(), expected.double(), rtol=rtol, atol=1e-6)

    return check


@pytest.fixture(autouse=True)
def seed() -> None:
    """Other inputs in every run; a failing one prints its seed."""
    print(f"torch.manual_seed({torch.seed()})")


@pytest.fixture(scope="session")
def cuda() -> str:
    """For what the interpreter cannot show."""
    if INTERPRETED or not HAS_TRITON:
        pytest.skip("needs a CUDA device and triton")
    return "cuda"
