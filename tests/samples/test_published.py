"""Tables that others have published: what each column becomes, and which rows are left out for what reason."""

import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.samples import read_samples, summarize

HEADERS = {
    "nccl": "system,src_file,version,op,dtype,num_gpus,bytes,time_us,rep",
    "nodes": "system,gpu,op,n_gpus,n_nodes,network,nccl,env,bytes,time_us,busbw_GBps,column,source",
    "gemm": "system,src,dtype,m,n,k,us",
    "attention": "batch_size,isl,num_heads,num_key_value_heads,head_dim,system,src,us",
    "moe": "system,src,kernel_source,moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,"
    "moe_ep_size,distribution,us",
    "membound": "hw,model,op,tokens,tp,bytes,us,std_us",
    "vidur": "file,collective,num_workers,devices_per_node,max_devices_per_node,bytes,us_min,us_median,us_std,us_max",
    "transfers": "metric,device,value,unit,method,source",
}


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def samples(table, *rows):
        (tmp_path / "t.csv").write_text("\n".join([HEADERS[table], *rows]) + "\n")
        return read_samples(["t.csv"])

    return samples


def told(samples):
    """What each row says, without the features that it has not."""
    rows = samples.table.to_dict("records")
    return [{key: value for key, value in row.items() if value == value} for row in rows]


def about(samples, *columns):
    return samples.table[list(columns)].values.tolist()


@pytest.mark.parametrize(
    ("table", "row", "expected"),
    [
        (
            "nccl",
            "h100_sxm,h100_sxm/nccl/2.27.3,2.27.3,all_gather,half,8,1048576,21.5,0",
            {
                "cost_class": "all_gather",
                "device": "H100 SXM",
                "library": "nccl 2.27.3",
                "group": "h100_sxm/nccl/2.27.3 half",
                "bytes": 1048576,
                "gpus": 8,
                "seconds": 21.5e-6,
                "source": "t.csv:2",
            },
        ),
        (
            "nccl",
            "a100_sxm,a,,alltoall,int8,4,1024,9.5,1",
            {
                "cost_class": "all_to_all",
                "device": "A100 SXM 80GB",
                "library": "nccl unknown",
                "bytes": 1024,
                "gpus": 4,
            },
        ),
        (
            "nodes",
            "h100x8,H100 SXM,all_reduce,16,2,8xNDR400 IB,2.26.2,default,8589934592,34500,466,in-place,somewhere",
            {
                "cost_class": "all_reduce.network",
                "device": "H100 SXM",
                "library": "nccl",
                "group": "h100x8 x16",
                "bytes": 8589934592,
                "gpus": 16,
                "nodes": 2,
                "network_bytes_per_s": 400e9,
                "seconds": 34.5e-3,
            },
        ),
        (
            "nodes",
            "v,V100 SXM2 32GB,all_reduce,16,2,EFA 100G (2019),2,x,1024,20,1,in-place,u",
            {"network_bytes_per_s": 12.5e9, "network": "efa-1"},
        ),
        (
            "nodes",
            "g,GB200,all_reduce,64,16,,2,x,1024,20,1,in-place,u",
            {"nodes": 16, "network": "", "network_bytes_per_s": None},
        ),
        (
            "nodes",
            "h100x8,H100 SXM,all_reduce,8,1,NVSwitch,2.26.2,default,1024,30,0.1,in-place,somewhere",
            {"cost_class": "all_reduce", "gpus": 8, "seconds": 30e-6},
        ),
        (
            "gemm",
            "h200_sxm,trtllm/1.0.0,bfloat16,128,4096,7168,25.5",
            {
                "cost_class": "gemm.bf16",
                "device": "H200 SXM",
                "library": "trtllm/1.0.0",
                "group": "4096x7168",
                "m": 128,
                "n": 4096,
                "k": 7168,
                "seconds": 25.5e-6,
            },
        ),
        ("gemm", "h200_sxm,trtllm/1.0.0,fp8,128,4096,7168,25.5", {"cost_class": "gemm.fp8"}),
        (
            "attention",
            "4,2048,32,8,128,h100_sxm,trtllm/1.0.0,410.5",
            {
                "cost_class": "attention.forward",
                "device": "H100 SXM",
                "library": "trtllm/1.0.0",
                "group": "32/8/128",
                "batch": 4,
                "seq": 2048,
                "heads": 32,
                "kv_heads": 8,
                "head_dim": 128,
                "causal": 1,
                "seconds": 410.5e-6,
            },
        ),
        (
            "moe",
            "h200_sxm,trtllm/1.0.0,moe_torch_flow,bfloat16,256,4096,1536,8,128,2,4,power_law_1.01,3070",
            {
                "cost_class": "grouped_gemm.bf16",
                "device": "H200 SXM",
                "library": "trtllm/1.0.0/moe_torch_flow",
                "group": "4096x1536x8x128",
                "tokens": 256,
                "hidden": 4096,
                "inter": 1536,
                "topk": 8,
                "experts": 128,
                "tp": 2,
                "ep": 4,
                "skew": 1.01,
                "matrices": 3,
                "seconds": 3070e-6,
            },
        ),
        (
            "moe",
            "h200_sxm,vllm,nongated_kernel,fp8,256,4096,1536,8,128,1,1,balanced,100",
            {"cost_class": "grouped_gemm.fp8", "skew": 0, "matrices": 2},
        ),
        (
            "membound",
            "a100,Qwen/Qwen-72B,add,32,1,1572864,3.0,0.4",
            {
                "cost_class": "memory.residual_add",
                "device": "A100 SXM 80GB",
                "library": "pytorch",
                "group": "Qwen/Qwen-72B",
                "bytes": 1572864,
                "seconds": 3e-6,
            },
        ),
        ("membound", "h100,m,post_attention_layernorm,32,1,1048576,5,0", {"cost_class": "memory.rms_norm"}),
        ("membound", "h100,m,mlp_act,32,1,1572864,5,0", {"cost_class": "memory.swiglu"}),
        (
            "vidur",
            "h100_dgx_all_reduce,all_reduce,4,4,8,2048,31,43,1,77",
            {
                "cost_class": "all_reduce",
                "device": "H100 SXM",
                "library": "nccl (vidur)",
                "gpus": 4,
                "bytes": 2048,
                "seconds": 43e-6,
            },
        ),
        (
            "vidur",
            "h100_dgx_all_reduce,all_reduce,16,8,8,2048,31,43,1,77",
            {"cost_class": "all_reduce.network", "gpus": 16, "nodes": 2},
        ),
        (
            "transfers",
            "h2d_pinned_ce,H800 SXM PCIe5,50,GB/s,nvbandwidth 0.2,somewhere",
            {
                "cost_class": "copy.h2d",
                "device": "H800 SXM",
                "library": "copy engine",
                "bytes": 64 * 2**20,
                "seconds": 64 * 2**20 / 50e9,
            },
        ),
        ("transfers", "all8_d2h_simul_ce_per_gpu,H20,50,GB/s,x,y", {"cost_class": "copy.d2h.concurrent"}),
        ("transfers", "d2h_bidir_ce,H20,50,GB/s,x,y", {"cost_class": "copy.d2h.bidirectional"}),
        ("transfers", "p2p_unidir,H20,50,GB/s,x,y", {"cost_class": "copy.p2p"}),
        ("transfers", "device_local_copy,H20,50,GB/s,x,y", {"cost_class": "copy.d2d"}),
    ],
)
def test_a_row_is_read(table, row, expected, read):
    (found,) = told(read(table, row))
    assert {key: found.get(key) for key in expected} == {
        key: pytest.approx(value) if isinstance(value, int | float) else value for key, value in expected.items()
    }


@pytest.mark.parametrize(
    ("op", "factor_times_size"),
    [("all_reduce", 2 * 7 / 8), ("all_gather", 7 / 8), ("reduce_scatter", 7 / 8), ("alltoall", 7 / 8)],
)
def test_published_bytes_are_those_of_nccl_tests_for_every_op(op, factor_times_size, read):
    (size,) = read("nccl", f"h100_sxm,f,2.27.3,{op},half,8,4096,20,0").table["bytes"]
    assert size * factor_times_size == 4096 * factor_times_size


def test_integer_and_half_rows_are_groups_of_one_library(read):
    rows = [f"h100_sxm,f,2.27.3,all_gather,{dtype},8,4096,20,0" for dtype in ("half", "int8")]
    assert about(read("nccl", *rows), "library", "group") == [["nccl 2.27.3", "f half"], ["nccl 2.27.3", "f int8"]]


GOOD = {
    "nccl": "h100_sxm,f,2.27.3,all_gather,half,8,4096,20,0",
    "nodes": "s,H100 SXM,all_reduce,16,2,8xNDR400 IB,2,default,1024,20,0.1,in-place,u",
    "gemm": "h100_sxm,s,bfloat16,128,4096,4096,20",
    "attention": "4,2048,32,8,128,h100_sxm,s,410.5",
    "moe": "h100_sxm,s,k,bfloat16,256,4096,1536,8,128,1,1,balanced,100",
    "membound": "h100,m,add,32,1,1572864,3.0,0.4",
    "vidur": "h100_dgx_all_reduce,all_reduce,4,4,8,2048,31,43,1,77",
    "transfers": "h2d_ce,H20,50,GB/s,x,y",
}


@pytest.mark.parametrize(
    ("table", "row", "reason"),
    [
        ("nccl", "l40s,f,2.27.3,all_gather,half,8,4096,20,0", "2 GB/s bus bandwidth: peer-to-peer was off"),
        ("nccl", "h100_sxm,f,2.27.3,all_reduce,int8,8,4096,20,0", "8-bit sums, 5 % slower than 16-bit ones"),
        ("nccl", "h100_sxm,f,2.27.3,reduce_scatter,int8,8,4096,20,0", "8-bit sums, 5 % slower than 16-bit ones"),
        ("nccl", "abacus,f,2.27.3,all_gather,half,8,4096,20,0", "device is not in the catalogue"),
        ("nodes", "s,H100 SXM,all_reduce,16,2,8xNDR400 IB,2,x,1024,20,1,peak busbw quoted,u", "a peak as quoted"),
        ("nodes", "s,H100 SXM,all_reduce,16,2,8xNDR400 IB (degraded),2,x,1024,20,1,in-place,u", "degraded network"),
        ("nodes", "s,H100 SXM,all_reduce,16,2,8xNDR400 IB (wrong HCA list),2,x,1,20,1,in-place,u", "degraded network"),
        ("nodes", "s,GH200 96GB,all_reduce,16,4,degraded Slingshot,2,x,1,20,1,in-place,u", "degraded network"),
        ("vidur", "a100_dgx_all_reduce,all_reduce,16,8,8,2048,1,43,1,7", "7.8 GB/s between nodes: not a tuned network"),
        ("vidur", "a100_pairwise_nvlink_all_reduce,all_reduce,4,4,4,2048,1,43,1,7", "NVLink joins pairs only"),
        ("vidur", "h100_dgx_all_reduce,all_reduce,many,8,8,2048,1,43,1,7", "gpus: expected at least 2"),
        ("vidur", "h100_dgx_all_reduce,all_reduce,16,few,8,2048,1,43,1,7", "nodes: expected at least 2"),
        ("nodes", "s,H100 SXM,all_reduce,16,,8xNDR400 IB,2,x,1024,20,1,in-place,u", "nodes: expected at least 2"),
        ("transfers", "h2d_sm,H20,50,GB/s,x,y", "no rate of a copy engine"),
        ("transfers", "host_device_latency_sm,H20,578,ns,x,y", "no rate of a copy engine"),
        ("gemm", "h100_sxm,s,bfloat17,128,4096,4096,20", "cost_class = 'gemm.bfloat17': unknown"),
        ("gemm", "h100_sxm,s,bfloat16,128,x,4096,20", "n: expected a number greater than zero"),
        ("gemm", "h100_sxm,s,bfloat16,128,4096,4096,nan", "seconds: expected a number greater than zero"),
        ("gemm", "h100_sxm,s,bfloat16,128,4096,4096,inf", "seconds: expected a number greater than zero"),
        ("gemm", "h100_sxm,s,bfloat16,128,4096,-4096,20", "k: expected a number greater than zero"),
        ("gemm", "h100_sxm,s,bfloat16,128,4096,4096", "seconds: expected a number greater than zero"),
        ("nccl", "h100_sxm,f,2.27.3,all_gather,half,8,many,20,0", "bytes: expected a number greater than zero"),
        ("nodes", "s,H100 SXM,all_reduce,16,2,8xNDR400 IB,2,x,1024,0,1,in-place,u", "seconds: expected a number"),
        ("attention", "4,,32,8,128,h100_sxm,s,410.5", "seq: expected a number greater than zero"),
        ("moe", "h100_sxm,s,k,bfloat16,256,4096,x,8,128,1,1,balanced,100", "inter: expected a number greater than"),
        ("membound", "h100,m,softmax,32,1,1572864,3.0,0.4", "cost_class = "),
        ("transfers", "h2d_ce,H20,fast,GB/s,x,y", "seconds: expected a number greater than zero"),
    ],
)
def test_a_row_that_misleads_is_left_out_with_its_line_and_reason(table, row, reason, read):
    samples = read(table, GOOD[table], row, GOOD[table])
    (line,) = samples.dropped
    assert line.startswith("t.csv:3: ")
    assert reason in line
    assert samples.table["source"].tolist() == ["t.csv:2", "t.csv:4"]


def test_a_table_of_nothing_but_misleading_rows_says_why_once_per_reason(read):
    with pytest.raises(UserError) as caught:
        read("transfers", "h2d_sm,H20,50,GB/s,x,y", "d2h_sm,H20,50,GB/s,x,y", "h2d_ce,abacus,50,GB/s,x,y")
    assert caught.value.faults == (
        "t.csv:2: H20: no rate of a copy engine (2 rows)",
        "t.csv:4: abacus: device is not in the catalogue",
    )


@pytest.mark.parametrize("table", HEADERS)
def test_a_table_without_rows(table, read):
    with pytest.raises(UserError) as caught:
        read(table)
    assert caught.value.faults == ("t.csv: holds no rows",)


def test_reasons_are_summed_per_file():
    lines = ["a.csv:2: slow", "a.csv:9: slow", "a.csv:3: odd", "b.csv:2: slow"]
    assert summarize(lines) == ["a.csv:2: slow (2 rows)", "a.csv:3: odd", "b.csv:2: slow"]
