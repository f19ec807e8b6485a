import pytest
import torch
from runcast.kernels.occupy import BLOCK, LONGEST_IDLE, occupy

MARGIN = 64


@pytest.mark.parametrize("size", [0, 16, 4096 + 16, BLOCK, 3 * BLOCK + 48])
@pytest.mark.parametrize(("programs", "rounds"), [(1, 1), (3, 2), (7, 1)])
def test_all_of_a_buffer_is_copied(device, size, programs, rounds):
    source = torch.randint(0, 256, [size], dtype=torch.uint8).to(device)
    memory = torch.full([size + 2 * MARGIN], 0xA5, dtype=torch.uint8, device=device)
    occupy(source, memory[MARGIN : MARGIN + size], programs, rounds)
    assert torch.equal(memory[MARGIN : MARGIN + size], source)
    assert (memory[:MARGIN] == 0xA5).all()
    assert (memory[MARGIN + size :] == 0xA5).all()


def test_no_rounds_copy_nothing(device):
    destination = torch.zeros(8, device=device)
    occupy(torch.ones(8, device=device), destination, programs=2, rounds=0)
    assert not destination.any()


def test_any_dtype_and_shape(device):
    source, destination = torch.randn(3, 8, device=device).bfloat16(), torch.empty(12, device=device)
    occupy(source, destination, programs=1, idle_ns=5)
    assert torch.equal(destination.view(torch.bfloat16), source.flatten())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": torch.empty(8)}, "destination: 64 bytes, source 32"),
        ({"source": torch.empty(15), "destination": torch.empty(15)}, "source: 60 bytes"),
        ({"source": torch.empty(17)[1:]}, "source: 64 bytes at .* multiples of 16"),
        ({"programs": 0}, "programs 0"),
        ({"rounds": -1}, "rounds -1"),
        ({"idle_ns": LONGEST_IDLE + 1}, "idle_ns: 1000001"),
    ],
)
def test_what_cannot_run_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        occupy(**{"source": torch.empty(16), "destination": torch.empty(16), "programs": 1, **change})


def seconds(source: torch.Tensor, **how: int) -> float:
    destination = torch.empty_like(source)
    occupy(source, destination, **how)  # compiled, memory touched
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    occupy(source, destination, **how)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


@pytest.mark.gpu
def test_rounds_and_idle_time_take_time(cuda):
    source = torch.empty(256 * BLOCK, dtype=torch.uint8, device=cuda)
    once = seconds(source, programs=4, rounds=4)
    assert seconds(source, programs=4, rounds=16) == pytest.approx(4 * once, rel=0.3)
    assert seconds(source, programs=4, rounds=4, idle_ns=100_000) > once + 256 / 4 * 4 * 10e-6


@pytest.mark.gpu
def test_new_values_compile_nothing(cuda):
    from runcast.kernels.compiled import occupy as kernel

    def variants() -> int:
        return sum(len(cache[0]) for cache in kernel.device_caches.values())

    source = torch.empty(BLOCK, dtype=torch.uint8, device=cuda)
    occupy(source, torch.empty_like(source), programs=2, rounds=3)
    before = variants()
    for size, rounds in [(16, 1), (48, 2), (BLOCK - 16, 16), (BLOCK, 17)]:
        occupy(source[:size], torch.empty_like(source[:size]), programs=rounds, rounds=rounds)
    assert variants() == before
