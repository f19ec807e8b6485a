"""Our own tables: what may be left out, what is wrong with a file or a row, and the way back to CSV."""

import gzip

import numpy as np
import pytest
from runcast.simulator.base.errors import UserError
from runcast.simulator.formats.samples import KEYS, features_of, read_samples, to_csv
from runcast.simulator.hardware import cluster, limits
from runcast.simulator.profile.forms import cost_class

HEADER = "cost_class,device,library,group,seconds,bytes,gpus"
ROW = "all_gather,H100 SXM,nccl,g,2e-5,1024,8"


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def samples(*lines, name="t.csv"):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return read_samples([name])

    return samples


def faults(read, *arguments, **named):
    with pytest.raises(UserError) as caught:
        read(*arguments, **named)
    return caught.value.faults


def test_a_row_of_our_own(read):
    (row,) = read(HEADER, ROW).table.to_dict("records")
    assert row == {
        "cost_class": "all_gather",
        "device": "H100 SXM",
        "library": "nccl",
        "group": "g",
        "seconds": 2e-5,
        "bytes": 1024,
        "gpus": 8,
        "source": "t.csv:2",
        "file": "t.csv",
    }


def test_blanks_around_cells_are_no_part_of_them(read):
    first = read(HEADER, ROW).table

    assert to_csv(read(HEADER.replace(",", ", "), f" {ROW.replace(',', ' , ')} ").table) == to_csv(first)


def test_what_is_not_said_is_unknown(read):
    (row,) = read("cost_class,seconds,bytes", "send_recv,1e-5,1024").table.to_dict("records")
    assert [row[key] for key in KEYS] == ["send_recv", "unknown", "unknown", "unknown", 1e-5, "t.csv:2"]


def test_a_source_of_its_own_is_kept(read):
    assert read(HEADER + ",source", f"{ROW},elsewhere:7").table["source"].tolist() == ["elsewhere:7"]


def test_a_table_is_written_and_read_back(read, tmp_path):
    first = read(HEADER, ROW, "send_recv,H100 SXM,nccl,g,1e-5,2048,")
    (tmp_path / "again.csv").write_bytes(to_csv(first.table))
    assert to_csv(read_samples(["again.csv"]).table) == to_csv(first.table)


def test_files_are_joined_and_keep_their_places(read, tmp_path):
    read(HEADER, ROW)
    read(HEADER, ROW, "all_gather,H100 SXM,nccl,g,x,1024,8", name="u.csv")
    both = read_samples([tmp_path / "t.csv", "u.csv"])
    assert (both.table["source"].tolist(), list(both.dropped)) == (
        [f"{tmp_path}/t.csv:2", "u.csv:2"],
        ["u.csv:3: seconds: expected a number greater than zero, 1e-12 to 1e9"],
    )


def test_no_files_hold_no_samples():
    assert len(read_samples([])) == 0


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("all_gather,H100 SXM,nccl,g,fast,1024,8", "seconds: expected a number greater than zero"),
        ("all_gather,H100 SXM,nccl,g,-1e-5,1024,8", "seconds: expected a number greater than zero"),
        ("all_gather,H100 SXM,nccl,g,1e-308,1024,8", "seconds: expected a number greater than zero, 1e-12 to 1e9"),
        ("all_gather,H100 SXM,nccl,g,1e-5,1e308,8", "bytes: expected a number greater than zero, at most 1e18"),
        ("all_gather,H100 SXM,nccl,g,nan,1024,8", "seconds: expected a number greater than zero"),
        ("all_gather,H100 SXM,nccl,g,1e-5,inf,8", "bytes: expected a number greater than zero"),
        ("all_gather,H100 SXM,nccl,g,1e-5,1024,", "gpus: expected at least 2"),
        ("all_gather,H100 SXM,nccl,g,1e-5", "bytes: expected a number greater than zero"),
        ("all_gether,H100 SXM,nccl,g,1e-5,1024,8", "cost_class = 'all_gether': unknown; did you mean all_gather"),
        ("gemm.bf16,H100 SXM,nccl,g,1e-5,1024,8", "m: expected a number greater than zero"),
    ],
)
def test_a_bad_row_is_left_out_and_the_others_are_kept(row, reason, read):
    samples = read(HEADER, ROW, "", row, ROW)
    (line,) = samples.dropped
    assert line.startswith(f"t.csv:4: {reason}")
    assert samples.table["source"].tolist() == ["t.csv:2", "t.csv:5"]


def test_a_collective_over_several_nodes_is_of_a_class_of_its_own(read):
    rows = [f"all_reduce,1e-5,1024,8,{nodes}" for nodes in ("", 1, 2)]
    found = read("cost_class,seconds,bytes,gpus,nodes", *rows, "all_reduce.network,1e-5,1024,8,2").table

    assert found["cost_class"].tolist() == ["all_reduce"] * 2 + ["all_reduce.network"] * 2


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("all_reduce.network,1,1024,8,1,,,,,", "nodes: expected at least 2, at most 1e18, whole"),
        ("all_reduce.network,1,1024,8,64,,,,,", "nodes: expected at most gpus"),
        ("all_reduce,1,1024,8.5,,,,,,", "gpus: expected at least 2, at most 1e18, whole"),
        ("attention.forward,1,,,,2,1024,8,16,128", "kv_heads: expected at most heads"),
        ("attention.forward,1,,,,2,1024,8.5,1,128", "heads: expected a whole number greater than zero, at most 1e18"),
    ],
)
def test_what_cannot_be_is_left_out_with_its_line(row, reason, read):
    header = "cost_class,seconds,bytes,gpus,nodes,batch,seq,heads,kv_heads,head_dim,causal"
    samples = read(header, "all_reduce,1,1024,8,,,,,,,", f"{row},1")

    assert samples.dropped == (f"t.csv:3: {reason}",)


@pytest.mark.parametrize(("column", "value", "allowed"), [("causal", 2, "0 or 1"), ("skew", -1, "zero or greater")])
def test_features_that_may_be_zero(column, value, allowed, read):
    features = {
        "causal": ("attention.forward", "batch,seq,heads,kv_heads,head_dim"),
        "skew": ("grouped_gemm.bf16", "tokens,hidden,inter,topk,experts,tp,ep,matrices"),
    }
    kind, others = features[column]
    ones = ",".join("1" for _ in others.split(","))
    samples = read(f"cost_class,seconds,{others},{column}", f"{kind},1,{ones},0", f"{kind},1,{ones},{value}")
    (line,) = samples.dropped
    assert (line.startswith(f"t.csv:3: {column}: "), allowed in line, len(samples)) == (True, True, 1)


def test_a_file_with_no_good_row_names_the_first_three(read):
    bad = "all_gather,H100 SXM,nccl,g,fast,1024,8"
    assert faults(read, HEADER, *[bad] * 5) == tuple(
        f"t.csv:{line}: seconds: expected a number greater than zero, 1e-12 to 1e9" for line in (2, 3, 4)
    )


def test_a_row_with_too_many_cells_is_named(read):
    assert faults(read, HEADER, ROW, ROW + ",1,2") == ("t.csv:3: 9 cells; expected 7, as the header has",)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([HEADER], "t.csv: holds no samples"),
        ([""], "t.csv:1: not a table of samples; its columns are "),
        (["size,time", "1,2"], "t.csv:1: not a table of samples; its columns are size, time"),
        (["cost_class,bytes", "send_recv,1"], "t.csv:1: not a table of samples; its columns are cost_class, bytes"),
        (["hello world"], "t.csv:1: not a table of samples; its columns are hello world"),
    ],
)
def test_what_is_no_table_of_samples(lines, message, read):
    assert faults(read, *lines) == (message,)


def test_what_is_no_text(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\x89PNG\xff\xfe")
    assert faults(read_samples, [tmp_path / "t.csv"]) == (f"{tmp_path}/t.csv: is not text; expected a CSV file",)


def test_what_is_no_file(tmp_path):
    assert faults(read_samples, [tmp_path / "t.csv"]) == (f"{tmp_path}/t.csv: no such file",)


def test_what_is_a_folder(tmp_path):
    assert faults(read_samples, [tmp_path]) == (f"{tmp_path}: is a folder; expected a CSV file",)


NOT_COMPRESSED = {
    "plain": b"plain",
    "no text": gzip.compress(b"\xff\xfe", mtime=0),
    "cut": gzip.compress(b"whole", mtime=0)[:-4],
    "body broken": gzip.compress(b"whole", mtime=0)[:10] + b"\xff" * 12,
}


@pytest.mark.parametrize("content", NOT_COMPRESSED.values(), ids=NOT_COMPRESSED)
def test_what_is_no_compressed_file(content, tmp_path):
    (tmp_path / "p.jsonl.gz").write_bytes(content)
    (line,) = faults(read_samples, [tmp_path / "p.jsonl.gz"])
    assert line.startswith(f"{tmp_path}/p.jsonl.gz:")


def test_a_byte_order_mark_and_the_line_ends_of_windows(tmp_path):
    (tmp_path / "t.csv").write_text(f"{HEADER}\r\n{ROW}\r\n", encoding="utf-8-sig", newline="")
    assert read_samples([tmp_path / "t.csv"]).table["gpus"].tolist() == [8]


def test_a_line_rate_counts_in_the_rows_that_have_it(read):
    header, row = "cost_class,seconds,bytes,link_bytes_per_s", "send_recv,1e-5,1024"
    each, some = (read(header, f"{row},5e10", f"{row},{rest}").table for rest in ("6e10", ""))
    assert features_of(each, cost_class("send_recv"))["link_bytes_per_s"].tolist() == [5e10, 6e10]
    kind, machine = cost_class("send_recv"), limits(cluster("dgx-h100", 1))
    assert kind.columns(features_of(some, kind), machine)["link_bytes_per_s"].tolist() == [5e10, 450e9]


def test_a_rate_that_is_no_number_leaves_its_row_out(read):
    header, row = "cost_class,seconds,bytes,link_bytes_per_s", "send_recv,1e-5,1024"
    samples = read(header, f"{row},5e10", f"{row},8 x 400 Gb/s")
    assert (len(samples), "link_bytes_per_s: expected" in samples.dropped[0]) == (1, True)


def test_columns_that_no_row_uses_are_not_written(read):
    table = read(HEADER, ROW).table.assign(nodes=np.nan)
    assert to_csv(table).decode().splitlines()[0] == "cost_class,device,library,group,seconds,source,bytes,gpus"


def test_a_table_that_is_named_twice_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("cost_class,seconds\n")
    with pytest.raises(UserError, match=r"a\.csv: is named twice"):
        read_samples([tmp_path / "a.csv", tmp_path / "." / "a.csv"])
