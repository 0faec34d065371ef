"""Studies and figures on the command line."""

import json

import pytest
from matplotlib.figure import Figure

from traincast.ui.cli.main import main
from traincast.ui.figures import paper
from traincast.ui.figures.from_files import OF_A_PLAN

STUDY = """
models: [gpt3-175b]
systems: [h200-nvs8]
gpus: [64, 128]
strategies: [1d]
vary:
  - accelerator.hbm_bytes: [60 GB, 141 GB, 282 GB]
  - accelerator.hbm_bandwidth: {linspace: [1 TB/s, 8 TB/s, 4]}
"""


@pytest.fixture
def run(capsys):
    """Run the command line: exit code, standard output, standard error."""

    def run(*arguments):
        code = 0
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code or 0
        return (code, *capsys.readouterr())

    return run


@pytest.fixture
def table(run, tmp_path):
    """A small study's table."""
    (tmp_path / "study.yaml").write_text(STUDY)
    code, out, _ = run("study", tmp_path / "study.yaml", "--output", tmp_path / "table.parquet", "--json")
    assert code == 0
    assert json.loads(out)["rows"] == 2 * 3 * 4
    return tmp_path / "table.parquet"


def test_a_study_in_shards(run, tmp_path, table):
    study, apart = tmp_path / "study.yaml", tmp_path / "apart.parquet"
    for k in (1, 2):
        code, out, _ = run("study", study, "--output", apart, "--shard", f"{k}/2")
        assert code == 0
        assert "traincast merge" in out
    code, out, _ = run("merge", study, "--output", apart)
    assert code == 0
    assert "24 rows" in out
    assert apart.read_bytes() == table.read_bytes()


def test_a_contour_of_a_study(run, tmp_path, table):
    code, out, err = run("plot", table, "--kind", "contour", "--output", tmp_path / "figure.svg")
    assert (code, err) == (0, "")
    assert out.strip().endswith("figure.svg")
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")


def test_figures_of_a_table_in_csv(run, tmp_path, table):
    """Every format that `study` writes is one that `plot` reads, to the same picture."""
    plain = tmp_path / "table.csv"
    assert run("study", tmp_path / "study.yaml", "--output", plain)[0] == 0
    drawn = []
    for file in (table, plain):
        figure = tmp_path / f"{file.suffix[1:]}.svg"
        assert run("plot", file, "--kind", "contour", "--output", figure)[0] == 0
        drawn.append(figure.read_bytes())
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    ("kind", "select"),
    [("scaling", []), ("throughput", []), ("optima", ["--system", "h200-nvs8"]), ("speedup", [])],
)
def test_figures_of_a_scaling_study(run, tmp_path, kind, select):
    (tmp_path / "study.yaml").write_text(
        "models: gpt3-1t\nsystems: [a100-nvs8, h200-nvs8]\ngpus: [512, 1024]\n"
        f"strategies: {'[1d, context]' if kind == 'speedup' else '1d'}\n"
    )
    assert run("study", tmp_path / "study.yaml", "--output", tmp_path / "table.parquet")[0] == 0
    code, _, err = run(
        "plot", tmp_path / "table.parquet", "--kind", kind, "--output", tmp_path / "figure.pdf", *select
    )
    assert (code, err) == (0, "")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")


def test_figures_of_a_plan(run, tmp_path):
    code, out, _ = run(
        "plan", "gpt3-175b", "--system", "h200-nvs8", "--gpus", "64", "--strategy", "1d,context", "--json"
    )
    assert code == 0
    (tmp_path / "plan.json").write_text(out)
    for kind in OF_A_PLAN:
        code, out, err = run(
            "plot", tmp_path / "plan.json", "--kind", kind, "--output", tmp_path / f"{kind}.png"
        )
        assert (code, err) == (0, "")
        assert (tmp_path / f"{kind}.png").read_bytes().startswith(b"\x89PNG")


def test_a_plan_with_facts_given_is_drawn(run, tmp_path):
    """The file says what its question left open and stated of the software."""
    asked = ["plan", "qwen3-30b-a3b", "--system", "dgx-h100", "--gpus", "16", "--framework", "megatron"]
    code, out, _ = run(*asked, "--given", "dispatcher=alltoall", "--json")
    assert code == 0
    (tmp_path / "plan.json").write_text(out)
    code, _, err = run(
        "plot", tmp_path / "plan.json", "--kind", "waterfall", "--output", tmp_path / "waterfall.png"
    )
    assert (code, err) == (0, "")


def test_a_plan_that_another_search_would_recommend_is_not_drawn(run, tmp_path):
    """Locks are in the file and searched with; what is trained stands there in words alone."""
    asked = ["plan", "llama-3-8b", "--system", "dgx-h100", "--gpus", "8", "--tp", "8", "--json"]
    code, usual, _ = run(*asked)
    assert code == 0
    code, lora, _ = run(*asked, "--train", "lora")
    assert code == 0
    without = json.dumps(json.loads(usual) | {"recommended": None})
    code, larger, _ = run("plan", "llama-3.1-70b", *asked[2:], "--train", "lora")  # which alone fits
    assert code == 0
    refused = "does not recommend its plan; plan --html draws a search with all of its options"
    for text, expected, said in ((usual, 0, ""), *((text, 2, refused) for text in (lora, without, larger))):
        (tmp_path / "plan.json").write_text(text)
        figure = ["--kind", "waterfall", "--output", tmp_path / "waterfall.png", "--force"]
        code, _, err = run("plot", tmp_path / "plan.json", *figure)
        assert code == expected
        assert said in " ".join(err.split())


def test_a_point_of_the_varied_fields_is_selected(run, tmp_path, table):
    figure = ["plot", table, "--kind", "throughput", "--output", tmp_path / "figure.svg"]
    code, _, err = run(*figure)
    assert (code, "select one with --point" in err) == (2, True)
    code, _, err = run(*figure, "--point", "5")
    assert (code, err) == (0, "")
    code, _, err = run(*figure, "--point", "12", "--force")  # 3 capacities x 4 bandwidths, from 0
    assert (code, "point = 12: must be one of 0, 1" in err) == (2, True)


def test_wrong_requests_for_figures(run, tmp_path, table):
    (tmp_path / "taken.svg").write_text("mine")
    wrong = {
        "--force overwrites": ["plot", table, "--kind", "contour", "--output", tmp_path / "taken.svg"],
        "no such file": [
            "plot",
            tmp_path / "nothing.parquet",
            "--kind",
            "contour",
            "--output",
            tmp_path / "a.svg",
        ],
        "malformed JSON": [
            "plot",
            table.parent / "study.yaml",
            "--kind",
            "pareto",
            "--output",
            tmp_path / "a.svg",
        ],
        "must be one of gpt3-175b": [
            "plot",
            table,
            "--kind",
            "contour",
            "--model",
            "gpt3-1t",
            "--output",
            tmp_path / "a.svg",
        ],
        "3/0": ["study", table.parent / "study.yaml", "--output", tmp_path / "b.parquet", "--shard", "3/0"],
        "workers = 0": [
            "study",
            table.parent / "study.yaml",
            "--output",
            tmp_path / "b.parquet",
            "--workers",
            "0",
        ],
        "dask = ''": ["study", table.parent / "study.yaml", "--output", tmp_path / "b.parquet", "--dask", ""],
        "already exists": ["study", table.parent / "study.yaml", "--output", table],
        "chunks are missing": ["merge", table.parent / "study.yaml", "--output", tmp_path / "c.parquet"],
    }
    for part, arguments in wrong.items():
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), part
        assert part in err
    assert (tmp_path / "taken.svg").read_text() == "mine"
    assert not (tmp_path / "a.svg").exists()


def test_the_papers_figures(run, tmp_path, monkeypatch, reproduced):
    """All are written and named: here one for each name, tests/ui/figures/test_texts.py draws the paper's."""
    figure = Figure((1, 1))
    names = [f"{k}-a-figure" for k in range(1, paper.FIGURES + 1)]
    monkeypatch.setattr(paper, "paper_figures", lambda: ((name, figure) for name in names))
    monkeypatch.setattr("traincast.planner.reproduce", lambda: reproduced)
    code, out, _ = run("reproduce", "2410.00273", "--figures", tmp_path / "figures")
    assert code == 0
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {f"{name}.svg" for name in names}
    assert all(f"{name}.svg" in out for name in names)


def test_collectives_of_a_file(run, tmp_path):
    """A table of timed collectives with predictions; without a system it is refused."""
    table = tmp_path / "nccl.csv"
    table.write_text("op,nodes,gpus_per_node,ranks,size_bytes,time_us\nallgather,8,4,32,1048576,216.1\n")
    figure = ["--kind", "collectives", "--output", tmp_path / "figure.png"]
    code, out, err = run("plot", table, *figure)
    assert (code, out) == (2, "")
    assert "--system: is missing" in err
    code, _, err = run("plot", table, *figure, "--system", "perlmutter")
    assert (code, err) == (0, "")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_collectives_of_output_that_does_not_say_what_ran(run, tmp_path):
    """Columns of nccl-tests alone: nodes and their GPUs are given, as to `calibrate`."""
    output = tmp_path / "output.txt"
    output.write_text(
        "#  size   count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"
        "1048576  262144  float  sum  -1  57.4  18.3  34.3  0  57.2  18.3  34.4  0\n"
        "16777216  4194304  float  sum  -1  180.2  93.1  174.6  0  180.0  93.2  174.8  0\n"
    )
    figure = ["--system", "dgx-h100", "--output", tmp_path / "figure.png"]
    kind = ["--kind", "collectives"]
    code, out, err = run("plot", output, *kind, *figure)
    assert (code, out) == (2, "")
    assert "give nodes=" in err
    code, _, err = run("plot", output, *kind, *figure, "--given", "op=allreduce nodes=2 gpus_per_node=8")
    assert (code, err) == (0, "")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = run("plot", output, "--kind", "scaling", *figure[2:], "--force", "--given", "op=allreduce")
    assert code == 2
    assert "--given: belongs to --kind collectives; --kind is scaling" in err
