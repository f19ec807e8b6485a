"""Made-up Kineto traces: events as PyTorch's profiler writes them, of what the caller says; microseconds.

`python tests/traces/kineto_file.py` writes the fixtures beside this file again.
"""

import gzip
import json
from pathlib import Path

HERE = Path(__file__).parent
GROUPS = {
    "0": ("default_pg", 4), "1": ("DATA_PARALLEL_GROUP", 2), "2": ("TENSOR_MODEL_PARALLEL_GROUP", 2),
    "3": ("PIPELINE_MODEL_PARALLEL_GROUP", 1),
}  # fmt: skip
GEMM = "nvjet_hsh_192x192_64x3_2x1_v_bz_coopB_TNT"
FLASH = (
    "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>, false>"
    "(flash::Flash_fwd_params)"
)
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float)"
SILU = "void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel(at::TensorIteratorBase&)>(int)"
ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float, 4>>"
LOSS = "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>(float*)"
ODD = "my_own_thing_v2(float*, int)"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
REDUCE_SCATTER = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def kernel(name, ts, dur, stream=7, **args):
    """A kernel on a stream of device 0."""
    args = {"External id": 17, "device": 0, "context": 1, "stream": stream, "correlation": round(ts * 1000)} | args
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args}


def nccl(name, ts, dur, collective, group="2", stream=20, nelems=1024, dtype="BFloat16"):
    """A kernel of NCCL with what PyTorch says of its collective."""
    description, size = GROUPS[group]
    said = {
        "Collective name": collective, "In msg nelems": nelems, "Out msg nelems": nelems, "Group size": size,
        "dtype": dtype, "Process Group Name": group, "Process Group Description": description,
        "Process Group Ranks": str(list(range(size))),
    }  # fmt: skip
    return kernel(name, ts, dur, stream, **said)


def copy(name, ts, dur, stream=7, size=4096):
    """A copy or fill, as CUPTI names it."""
    category = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
    args = {"device": 0, "stream": stream, "correlation": round(ts * 1000), "bytes": size}
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": stream, "ts": ts, "dur": dur, "args": args}


def step(number, ts, dur, gpu=True):
    """The annotation of a step, on the device or on the host."""
    where = ("gpu_user_annotation", 0, 7) if gpu else ("user_annotation", 4242, 4242)
    name = f"ProfilerStep#{number}"
    return {"ph": "X", "cat": where[0], "name": name, "pid": where[1], "tid": where[2], "ts": ts, "dur": dur}


def launch(ts, correlation_us):
    """The call on the host that launched the op that starts at `correlation_us`."""
    args = {"External id": 17, "cbid": 211, "correlation": round(correlation_us * 1000)}
    name = "cudaLaunchKernel"
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 4242, "tid": 4242, "ts": ts, "dur": 4, "args": args}


def host_op(name="aten::mm", ts=0.0, **args):
    """An op of the host, of which a trace is full."""
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 4242, "tid": 4242, "ts": ts, "dur": 5, "args": args}


def document(events, rank=0, world=4):
    """A whole trace file as a value."""
    groups = [
        {"pg_name": name, "pg_desc": said, "backend_config": "cuda:nccl", "pg_size": size, "ranks": list(range(size))}
        for name, (said, size) in GROUPS.items()
    ]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85029158912}],
        "distributedInfo": {
            "backend": "nccl", "rank": rank, "world_size": world, "pg_count": len(groups), "pg_config": groups,
        },
        "traceEvents": [{"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}}, *events],
        "traceName": "trace.json",
    }  # fmt: skip


def write(path, events, rank=0, world=4):
    """Write a trace file; returns its path."""
    data = json.dumps(document(events, rank, world)).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def layer(ts, slow=1.0):
    """A layer of a tensor-parallel forward: 400 us of kernels, 60 us waiting for its exchange, 10 us of the host."""
    return [
        kernel(NORM, ts, 20 * slow),
        kernel(GEMM, ts + 20 * slow, 150 * slow),
        kernel(FLASH, ts + 170 * slow, 80 * slow),
        nccl(ALL_REDUCE, ts + 240 * slow, 70 * slow, "allreduce", nelems=8 * 4096 * 4096),
        kernel(SILU, ts + 320 * slow, 30 * slow),
        kernel(GEMM, ts + 350 * slow, 120 * slow),
    ]


def training_step(number, ts, layers=6, slow=1.0):
    """A step: layers, loss, gradients reduced behind the last layers, optimizer, weights gathered."""
    length = 470 * slow
    end = ts + layers * length
    return [
        step(number, ts, end + 240 - ts),
        *(event for i in range(layers) for event in layer(ts + i * length, slow)),
        nccl(REDUCE_SCATTER, end - 300, 400, "_reduce_scatter_base", "1", 24, 12_000_000, "Float"),
        kernel(LOSS, end, 40),
        kernel(ADAM, end + 110, 60),
        nccl(ALL_GATHER, end + 170, 60, "_allgather_base", "1", 24, 6_000_000),
        copy("Memcpy DtoH (Device -> Pinned)", end + 232, 8, size=4),
    ]


def fixtures():
    """Name and events of each fixture."""
    steps = [event for i in range(3) for event in training_step(10 + i, 1000.0 + 3200 * i)]
    behind = [event for i in range(3) for event in training_step(10 + i, 5000.0 + 3200 * i, slow=1.02)]
    return {"megatron-rank0.json.gz": (steps, 0), "megatron-rank1.json.gz": (behind, 1)}


if __name__ == "__main__":
    for name, (events, rank) in fixtures().items():
        write(HERE / "fixtures" / name, events, rank)
