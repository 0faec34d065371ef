"""Output of nccl-tests and tables of collectives.
Texts are in the form that the tool gives them; every figure is invented."""

import json

import pytest

import traincast as tc
from log_files import CLUSTER, written
from traincast.accuracy.logs import CollectiveRows, read
from traincast.accuracy.logs.nccl_tests import operation


def test_nccl_example():
    reading = read(CLUSTER / "all_reduce.txt")
    assert isinstance(reading, CollectiveRows)
    assert len(reading.rows) == 18
    first, last = reading.rows[0], reading.rows[-1]
    assert (first.op, first.nodes, first.gpus_per_node, first.ranks, first.size_bytes) == (
        "allreduce",
        2,
        8,
        16,
        65536,
    )
    assert (first.time_us, last.time_us) == (43.01, 46339.6)  # out of place, off the file by eye
    assert (last.size_bytes, last.gpu) == (2.0**33, "NVIDIA H100 80GB HBM3")


RANKS = "".join(
    f"#  Rank {r:2} Group  0 Pid  {r} on node{r // 4} device {r % 4} [0x07] NVIDIA A100-SXM4-40GB\n"
    for r in range(8)
)
HEADER = (
    "#       size         count      type   redop    root     "
    "time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
)
LINE = (
    "     1048576        262144     float     sum      -1    "
    "88.10   11.90   20.83      0    86.20   12.16   21.29      0\n"
)


def of_nccl(folder, text, name="out.txt", **kw):
    reading = read(written(folder, name, text), **kw)
    assert isinstance(reading, CollectiveRows)
    return reading


def test_the_operation_comes_from_the_output_the_file_name_or_a_given_value(tmp_path):
    assert of_nccl(tmp_path, RANKS + HEADER + LINE, "2x4-reduce_scatter.txt").rows[0].op == "reducescatter"
    assert (
        of_nccl(tmp_path, "# Collective test starting: alltoall_perf\n" + RANKS + HEADER + LINE).rows[0].op
        == "all2all"
    )
    assert of_nccl(tmp_path, RANKS + HEADER + LINE, op="allgather").rows[0].op == "allgather"
    with pytest.raises(tc.InputError, match="op: the output does not say"):
        of_nccl(tmp_path, RANKS + HEADER + LINE)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("all_reduce_perf", "allreduce"), ("AllReduce.txt", "allreduce"),
        ("reduce-scatter-16.log", "reducescatter"),
        ("reduce_perf", "reduce"), ("alltoall_perf", "all2all"), ("all-to-all", "all2all"),
        ("sendrecv_perf", "p2p"),
        ("broadcast", "broadcast"), ("out", None),
        ("all_gather_perf_mpi", "allgather"),
    ],
)  # fmt: skip
def test_names_of_operations(name, op):
    assert operation(name) == op


def test_where_it_ran(tmp_path):
    row = of_nccl(tmp_path, RANKS + HEADER + LINE, "all_reduce.txt").rows[0]
    assert (row.nodes, row.gpus_per_node, row.ranks, row.time_us, row.gpu) == (
        2,
        4,
        8,
        88.1,
        "NVIDIA A100-SXM4-40GB",
    )
    with pytest.raises(tc.InputError) as error:
        of_nccl(tmp_path, HEADER + LINE)
    assert [problem.split(":")[0] for problem in error.value.problems] == ["op", "nodes", "gpus_per_node"]
    assert of_nccl(tmp_path, HEADER + LINE, op="allreduce", nodes=4, gpus_per_node=8).rows[0].ranks == 32


def test_groups_side_by_side(tmp_path):
    """Tests split into groups: ranks of one of them."""
    split = "".join(
        line.replace("Group  0", f"Group  {at % 4}") + "\n" for at, line in enumerate(RANKS.splitlines())
    )
    row = of_nccl(tmp_path, split + HEADER + LINE, "all_reduce.txt").rows[0]
    assert (row.nodes, row.gpus_per_node, row.ranks) == (2, 1, 2)


def test_left_out_rows_of_a_table_have_reasons(tmp_path):
    wrong = LINE.replace("20.83      0", "20.83      7")
    nothing = LINE.replace("1048576", "      0", 1)
    torn = "[1,0]<stdout>:" + LINE.rstrip() + "\n"
    reading = of_nccl(
        tmp_path, RANKS + HEADER + LINE + wrong + nothing + torn + LINE[:60] + "\n", "all_reduce.txt"
    )
    assert len(reading.rows) == 2
    assert reading.left_out == ("line 11: wrong results", "line 12: of no byte", "line 14: cut off")


def test_tables_without_a_root_or_with_more_columns(tmp_path):
    old = HEADER.replace("    root ", " ").replace("#wrong", " error")
    reading = of_nccl(
        tmp_path, RANKS + old + LINE.replace("      -1 ", " ").replace("      0", "  4e-07"), "all_reduce.txt"
    )
    assert (reading.rows[0].time_us, reading.left_out) == (88.1, ())
    host = HEADER.replace(" time ", " cputime ")
    with pytest.raises(tc.InputError, match="time of the host"):
        of_nccl(tmp_path, RANKS + host + LINE, "all_reduce.txt")


def test_ranks_that_nodes_share_unevenly(tmp_path):
    uneven = "".join(line + "\n" for line in RANKS.splitlines()[:-1])
    row = of_nccl(tmp_path, uneven + HEADER + LINE, "all_reduce.txt").rows[0]
    assert (row.nodes, row.gpus_per_node, row.ranks) == (2, 4, 7)
    row = of_nccl(tmp_path, RANKS + HEADER + LINE, "all_reduce.txt", nodes=4).rows[
        0
    ]  # containers that share a host's name
    assert (row.nodes, row.gpus_per_node, row.ranks) == (4, 2, 8)


def test_several_tests_in_one_file(tmp_path):
    start = "# Collective test starting: {}_perf\n# nThread 1 nGpus 1 minBytes 8 maxBytes 8\n"
    text = (
        start.format("all_reduce")
        + RANKS
        + HEADER
        + LINE
        + start.format("all_gather")
        + RANKS
        + HEADER
        + LINE
    )
    assert [(row.op, row.ranks) for row in of_nccl(tmp_path, text).rows] == [
        ("allreduce", 8),
        ("allgather", 8),
    ]


def nccl_json(**changed):
    devices = [
        {
            "rank": r,
            "group": 0,
            "hostname": f"node{r // 8}",
            "device": r % 8,
            "device_info": "NVIDIA H100 80GB HBM3",
        }
        for r in range(16)
    ]
    result = {
        "size": 1024, "count": 256, "type": "float", "redop": "sum", "root": "    -1",
        "out_of_place": {"time": 30.5, "alg_bw": 0.03, "bus_bw": 0.06, "nwrong": 0.0},
        "in_place": {"time": 29.5, "alg_bw": 0.03, "bus_bw": 0.06, "nwrong": None},
    }  # fmt: skip
    document = {
        "version": 2,
        "args": ["/opt/nccl-tests/build/all_reduce_perf", "-b", "1K"],
        "nccl_version": 22805,
    }
    return (
        document | {"config": {"nthreads": 1, "ngpus": 1, "devices": devices}, "results": [result]} | changed
    )


def test_json_of_nccl_tests(tmp_path):
    row = of_nccl(tmp_path, json.dumps(nccl_json())).rows[0]
    assert (row.op, row.nodes, row.gpus_per_node, row.ranks, row.size_bytes, row.time_us) == (
        "allreduce",
        2,
        8,
        16,
        1024,
        30.5,
    )
    alone = nccl_json(config={"nthreads": 1, "ngpus": 8, "devices": nccl_json()["config"]["devices"][:1]})
    assert (
        of_nccl(tmp_path, json.dumps(alone)).rows[0].ranks == 8
    )  # one process of eight GPUs lists the first of them
    base = nccl_json()["results"][0]
    some = [base | {"out_of_place": None}, base | {"in_place": {"nwrong": 3}}, 7, base | {"size": 0}]
    reading = of_nccl(tmp_path, json.dumps(nccl_json(results=some)))
    assert [row.time_us for row in reading.rows] == [29.5]
    assert reading.left_out == ("result 2: wrong results", "result 3: no mapping", "result 4: of no byte")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(nccl_json())[:-20],
        json.dumps(nccl_json(results=None)),
        json.dumps(nccl_json(config=7, devices=7)),
    ],
)
def test_json_that_is_broken(tmp_path, text):
    with pytest.raises(tc.InputError):
        read(written(tmp_path, "out.json", text))


def test_a_table_of_collectives(tmp_path):
    path = written(
        tmp_path,
        "mine.csv",
        "op,nodes,gpus_per_node,ranks,size_bytes,time_us\nallreduce,2.0,8.0,16.0,1024.0,30.5\nallreduce,,8,16,1,1\n",
    )
    reading = read(path)
    assert (reading.rows[0].op, reading.rows[0].ranks, reading.rows[0].time_us) == ("allreduce", 16, 30.5)
    assert len(reading.left_out) == 1


def test_collectives_out_of_their_bandwidth(tmp_path):
    """1 GB at 100 GB/s are 10 ms; bus bandwidth of an all-reduce of 16 ranks is 2 · 15/16 of it,
    of an all-gather 15/16."""
    header = "op,nodes,gpus_per_node,size_bytes,algbw_gb_s,busbw_gb_s\n"
    lines_here = [
        "allreduce,2,8,1e9,100,",
        "allreduce,2,8,1e9,,187.5",
        "allgather,2,8,1e9,,93.75",
        "p2p,2,1,1e9,,100",
        "allreduce,2,8,1e9,0,",
    ]
    reading = read(written(tmp_path, "mine.csv", header + "\n".join(lines_here)))
    assert [row.time_us for row in reading.rows] == pytest.approx([1e4, 1e4, 1e4])
    assert [reason.split(":")[0] for reason in reading.left_out] == ["line 5", "line 6"]
    with pytest.raises(tc.InputError, match="tp: not used"):
        read(tmp_path / "mine.csv", tp=8)


TRIALS = "".join(
    f"ignore me 1\n{rank}:\n duration: 0.8000 sec\n algo throughput: 80000000000.0000 bps, 80.0000 Gbps\n"
    " busbw: 75.0000  Gbps\n"
    for rank in range(16)
)  # 4 GB, counted twice, in 0.8 s; 75/80 = 15/16
TABLE = (
    "The average bandwidth of all_reduce over 16 ranks (5 warmups / 20 trials):\n\n"
    "| payload |    busbw   |    algbw   |\n| ------: | ---------: | ---------: |\n"
    "|   32KiB |   0.09GBps |   0.05GBps |\n|    1GiB | 187.50GBps | 100.00GBps |\n"
)
PAYLOAD = (
    "The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 16 ranks):\n"
    " algbw: 100.000 GBps (800.0 Gbps)\n busbw: 187.500 GBps (1500.0 Gbps)\n"
)


@pytest.mark.parametrize(
    ("text", "size", "us"),
    [(TRIALS, 4e9, 8e5), (TABLE, 2.0**30, 2**30 / 1e5), (PAYLOAD, 2.0**32, 2**32 / 1e5)],
    ids=["of each rank", "table", "one payload"],
)
def test_all_reduce_bench(tmp_path, text, size, us):
    for given in ({"nodes": 2}, {"gpus_per_node": 8}):
        row = of_nccl(tmp_path, text, **given).rows[0]
        assert (row.op, row.nodes, row.gpus_per_node, row.ranks) == ("allreduce", 2, 8, 16)
        assert (row.size_bytes, row.time_us) == pytest.approx((size, us))
    with pytest.raises(tc.InputError, match="nodes: the output does not say"):
        of_nccl(tmp_path, text)


def test_nodes_of_all_reduce_bench_are_in_its_launch_or_in_lines_of_nccl(tmp_path):
    launch = "srun python -m torch.distributed.launch --nnodes 2 --nproc_per_node=8 all_reduce_bench.py\n"
    lines = "".join(f"node{n}:{n}01:{n}01 [0] NCCL INFO Bootstrap : Using ib0\n" for n in (1, 2))
    for text in (launch + TABLE, lines + TABLE):
        reading = of_nccl(tmp_path, text)
        assert (reading.rows[0].nodes, reading.rows[0].gpus_per_node) == (2, 8)
    assert reading.left_out == ("payload 32 KB: 0.05 GB/s is rounded too much",)


def test_the_program_that_a_text_names_is_the_operation(tmp_path):
    run = "$ mpirun -np 8 ./all_gather_perf -b 1M\n"
    assert of_nccl(tmp_path, run + RANKS + HEADER + LINE).rows[0].op == "allgather"
    with pytest.raises(tc.InputError, match="op: the output does not say"):
        of_nccl(tmp_path, run + "./all_reduce_perf\n" + RANKS + HEADER + LINE)
