"""The command `traincast limits`."""

import json

import pytest

from traincast.ui.cli.main import main


@pytest.fixture
def run(capsys):
    """Run the command line: exit code, standard output, standard error."""

    def run(*arguments):
        code = 0
        try:
            main(["limits", *map(str, arguments)])
        except SystemExit as stop:
            code = stop.code or 0
        return (code, *capsys.readouterr())

    return run


def test_acceptance(run, tmp_path):
    """The figures are drawn into a folder that need not be there, and named."""
    folder = tmp_path / "out" / "limits"
    code, out, err = run("--accelerator", "h100-sxm-80", "--figures", folder)
    assert (code, err) == (0, "")
    drawn = sorted(folder.iterdir())
    assert [path.name for path in drawn] == ["utilisation_by_cluster.svg", "utilisation_by_compute.svg"]
    assert all(str(path) in out for path in drawn)


def test_json_holds_the_request(run):
    options = [
        "--layer",
        "4096 x 16384",
        "--batch",
        "1M",
        "--gpus",
        "8,64",
        "--network",
        "100 GB/s",
        "--micro-batches",
        "4",
    ]
    code, out, _ = run("--accelerator", "a100-sxm-80", *options, "--days", "30", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["layer"] == {"d_in": 4096, "d_out": 16384}
    assert (answer["batch_tokens"], answer["micro_batches"], answer["training_days"]) == (2**20, 4, 30)
    assert answer["device"]["network_bandwidth"] == 100e9
    assert [row["gpus"] for row in answer["clusters"]] == [8, 64]
    assert all(row["tp_in"] * row["tp_out"] * row["dp"] == row["gpus"] for row in answer["clusters"])
    assert answer["halves_flops"] < answer["collapses_flops"]


def test_a_layer_that_cannot_be_cut_so_far(run):
    """2 x 2 weights and 2 tokens are at most 8 devices."""
    code, out, _ = run("--accelerator", "h100-sxm-80", "--layer", "2x2", "--batch", "2", "--gpus", "16")
    assert code == 0
    assert "cannot be sharded so" in out
    _, out, _ = run(
        "--accelerator", "h100-sxm-80", "--layer", "2x2", "--batch", "2", "--gpus", "16", "--json"
    )
    assert json.loads(out)["clusters"][0]["seconds"] is None


def test_all_that_is_wrong_is_reported_at_once(run, tmp_path):
    (tmp_path / "file").write_text("")
    wrong = [
        "--gpus",
        "3,0,x",
        "--layer",
        "3",
        "--batch",
        "0",
        "--network",
        "3cows",
        "--days",
        "-1",
        "--batch-growth",
        "2",
    ]
    code, out, err = run(
        "--accelerator", "h100-sx-80", *wrong, "--micro-batches", "0", "--figures", tmp_path / "file"
    )
    assert (code, out) == (2, "")
    problems = (
        "--layer: '3'",
        "--batch: '0'",
        "'cows'",
        "'x'",
        "--gpus: '0'",
        "days = -1.0",
        "batch_growth = 2.0",
        "micro_batches = 0",
    )
    for problem in (*problems, "did you mean h100-sxm-80", "is not a folder"):
        assert err.count(problem) == 1
    assert "10 problems" in err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "give one of them"),
        (["--accelerator", "h100-sxm-80", "--system", "dgx-h100"], "give one of them"),
        (["--accelerator", "h100-sxm-80", "--network", "0 GB/s"], "must be above 0"),
        (["--accelerator", "h100-sxm-80", "--network", "900"], "network = '900': has no unit"),
        (["--system", "dgx-h10"], "did you mean dgx-h100"),
    ],
)
def test_invalid_arguments_are_refused(options, expected, run):
    code, out, err = run(*options)
    assert (code, out) == (2, "")
    assert expected in err


def test_a_folder_is_not_named_like_a_figure(run, tmp_path):
    code, _, err = run("--accelerator", "h100-sxm-80", "--figures", tmp_path / "out.png")
    assert code == 2
    assert f"give a folder, such as {tmp_path / 'out'}" in err
    assert not (tmp_path / "out.png").exists()
    (tmp_path / "out.png").mkdir()  # a folder that is there is one
    assert run("--accelerator", "h100-sxm-80", "--figures", tmp_path / "out.png")[0] == 0


def test_the_notebooks_cell_on_the_command_line(run):
    """Device('H100 SXM5', 1979e12, 3352e9, 900e9) and the sharding of cell 168 of Epoch AI's notebook."""
    device = ["--flops8", "1979 TFLOP/s", "--memory", "3352 GB/s", "--network", "900 GB/s"]
    layer = ["--layer", "16384x81920", "--batch", "4M", "--micro-batches", "128"]
    cut = ["--tp-in", "8", "--tp-out", "40", "--dp", "32"]
    code, out, err = run("--accelerator", "h100-sxm-80", *device, *layer, *cut, "--gpus", "64", "--json")
    assert (code, err) == (0, "")
    sharding = json.loads(out)["sharding"]
    assert sharding["micro_batch"]["total"] == pytest.approx(3.2554072481051035e-05, rel=1e-12)
    assert sharding["micro_batch"]["memory"] == pytest.approx(2.2757727923627685e-05, rel=1e-12)
    assert sharding["micro_batch"]["network"] == pytest.approx(2.5864874666666665e-05, rel=1e-12)


def test_a_sharding_alone_has_degrees_of_1(run):
    """All FLOPs of 4 Mi tokens on 2 GPUs at 80 % of 1979/2 TFLOP/s: 6 x 16384 x 81920 x 2^22 / 2."""
    code, out, _ = run("--accelerator", "h100-sxm-80", "--tp-in", "2", "--flops8", "1979 TFLOP/s", "--json")
    sharding = json.loads(out)["sharding"]
    assert code == 0
    assert (sharding["tp_out"], sharding["dp"]) == (1, 1)
    assert sharding["micro_batch"]["flop"] == pytest.approx(
        6 * 16384 * 81920 * 2**22 / 2 / (0.8 * 1979e12 / 2), rel=1e-12
    )


def test_words_of_one_byte_compute_twice_as_fast(run):
    times = []
    for width in ("1", "2"):
        _, out, _ = run("--accelerator", "h100-sxm-80", "--dp", "2", "--width", width, "--json")
        times.append(json.loads(out)["sharding"]["micro_batch"])
    assert times[1]["flop"] == pytest.approx(2 * times[0]["flop"])
    assert times[1]["memory"] == pytest.approx(2 * times[0]["memory"])


def test_a_sharding_that_cannot_be(run):
    wrong = ["--tp-in", "0", "--width", "-1", "--sustained", "200%", "--flops8", "12", "--memory", "3 cows"]
    code, out, err = run("--accelerator", "h100-sxm-80", *wrong)
    assert (code, out) == (2, "")
    for part in ("tp_in = 0.0", "width = -1.0", "sustained = 2.0", "flops8 = '12'", "memory = '3 cows'"):
        assert part in err


@pytest.mark.parametrize(("form", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_figures_in_every_format(run, tmp_path, form, begins):
    code, _, _ = run("--accelerator", "h100-sxm-80", "--figures", tmp_path, "--format", form)
    drawn = sorted(tmp_path.iterdir())
    assert code == 0
    assert [path.suffix for path in drawn] == [f".{form}"] * 2
    assert all(path.read_bytes().startswith(begins) for path in drawn)
