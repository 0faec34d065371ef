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
    assert "cannot be cut so" in out
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
        "gpus = 0",
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
        (["--accelerator", "h100-pcie-80"], "give network, such as 900 GB/s"),
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
