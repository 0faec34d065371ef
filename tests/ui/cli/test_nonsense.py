"""Nonsense is refused with its field named, and no answer is given for it."""

import csv
from pathlib import Path

import pytest

from traincast.core.errors import InputError
from traincast.launch.settings.settings import whole_number
from traincast.ui.cli.main import main

PLAN = ("plan", "llama-3-8b", "--system", "dgx-h100", "--gpus", "8")
LIMITS = ("limits", "--accelerator", "h100-sxm-80")
SCALING = ("scaling", "--model", "gpt-13b", "--system", "polaris")
TRACE = ("trace", "gpt-125m", "--system", "dgx-h100")
LONG = "9" * 400
SHORTENED = "999999999999999999...9999999999999999999"  # as reprlib does
LONGER = "9" * 5_000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*PLAN, "--price", "1e308"), "price = 1e+308: must be from 0 to 1e+06"),
        ((*PLAN, "--train", "lora:r=99999999999999999999"), "rank = 99999999999999999999: must be at most"),
        ((*PLAN, "--train", "lora:r=4097"), "adapters.rank = 4097: must be at most hidden = 4096"),
        ((*PLAN, "--lengths", "512:0.7,2048:0.6"), "the shares sum to 1.3"),
        ((*PLAN, "--lengths", "512:0.7"), "the shares sum to 0.7"),
        ((*PLAN, "--lengths", "padded:"), "names no length"),
        ((*PLAN, "--lengths", "5" * 400), "must be a whole number"),
        ((*PLAN, "--recompute", "mlp+mlp"), "names one of them twice; write mlp"),
        ((*PLAN, "--seq", "0"), "--seq = '0': must be a whole number from 1"),
        ((*PLAN[:-1], "0x10"), "--gpus = '0x10': must be a whole number"),
        ((*PLAN[:-1], "1_000"), "--gpus = '1_000': must be a whole number"),
        ((*PLAN[:-1], "٨"), "must be a whole number"),
        ((*PLAN, "--etp", "2"), "etp"),
        (("estimate", *PLAN[1:4], "--dp", "8", "--etp", "2", "--tp", "2"), "etp is above 1 without experts"),
        (
            ("advise", *PLAN[1:4], "--dp", "8", "--step-seconds", "1e-300"),
            "step_seconds = 1e-300: must be from",
        ),
        ((*LIMITS, "--days", "1e300"), "days = 1e+300: must be from"),
        ((*LIMITS, "--days", "1e-300"), "days = 1e-300: must be from"),
        ((*LIMITS, "--width", "1000"), "width = 1000.0: must be above 0 and at most 16 bytes"),
        ((*LIMITS, "--dp", "1e300"), "dp = 1e+300: must be from 1"),
        ((*LIMITS, "--micro-batches", "1000000000000"), "micro_batches = 1000000000000: must be at most"),
        ((*LIMITS, "--micro-batches", "1000000000"), "must be at most the 4,194,304 tokens"),
        ((*TRACE, "--dp", LONG), f"dp = {SHORTENED}: must be at most 1,073,741,824"),
        ((*TRACE, "--gbs", LONG), f"gbs = {SHORTENED}: must be at most 16,777,216"),
        ((*TRACE, "--stages", f"0-{LONG}"), f"number = {SHORTENED}: must be at most 1,048,576"),
        ((*PLAN[:-1], LONG), f"gpus = {SHORTENED}: must be at most 4,194,304"),
        # Python reads no more than 4,300 digits as a number
        ((*TRACE, "--stages", LONGER), "write numbers and ranges with commas"),
        ((*PLAN, "--train", f"lora:r={LONGER}"), "must be a whole number of at least 1"),
        ((*PLAN[:-2], "--nodes", LONGER), "must be a whole number of at least 1"),
        (("compare", *PLAN[1:-1], LONGER), "must be whole numbers of at least 1"),
        ((*SCALING, "--gpus", LONGER), "must be a whole number of at least 1"),
        (("limits", "--accelerator", "h100-sxm-80", "--layer", f"{LONGER}x4"), "write input x output width"),
        (("study", "study.yaml", "--output", "x.csv", "--shard", f"1/{LONGER}"), "must be k/n"),
        ((*LIMITS, "--network", "-1 GB/s"), "network = '-1 GB/s': must be above 0"),
        ((*LIMITS, "--sustained", "-80%"), "sustained = -0.8"),
        ((*SCALING, "--gpus", "8,8"), "gpus: 8 is given twice"),
        ((*SCALING, "--gpus", "8,64", "--zero", "1,1"), "zero: 1 is given twice"),
        ((*SCALING, "--gpus", "8,64", "--efficiency", "64=0.9,64=0.8"), "gives one number of GPUs twice"),
    ],
)
def test_it_is_refused_by_name(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ended.value.code == 2
    assert said in " ".join(printed.err.split())


def test_a_share_is_written_either_way(capsys):
    for share in ("5%", "0.05"):
        with pytest.raises(SystemExit, match="1"):  # the plan does not fit
            main(["advise", *PLAN[1:4], "--dp", "8", "--network-share", share])
    assert "Plan: DP 8" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["pareto"])
def test_a_file_of_many_brackets_is_refused(kind, tmp_path, capsys):
    file = tmp_path / "deep.json"
    file.write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(SystemExit, match="2"):
        main(["plot", str(file), "--kind", kind, "--output", str(tmp_path / "x.svg")])
    assert "is nested too deeply" in " ".join(capsys.readouterr().err.split())


COLUMNS = "model,system,gpus,seq,precision,tp,pp,gbs,step_seconds"
ROW = "llama-3-8b,dgx-h100,8,8192,bf16,1,1,64"


@pytest.mark.parametrize("seconds", ["-3.1", "nan", "inf", "0"])
def test_a_table_without_a_usable_run_is_refused(seconds, tmp_path, capsys):
    """A script that looks at the exit code must not pass with nothing validated."""
    table = tmp_path / "runs.csv"
    table.write_text(f"{COLUMNS}\n{ROW},{seconds}\n")
    with pytest.raises(SystemExit, match="2"):
        main(["validate", "--runs", str(table)])
    assert "runs.csv" in capsys.readouterr().err


def test_a_row_with_more_cells_than_the_header_is_refused(tmp_path, capsys):
    table = tmp_path / "runs.csv"
    table.write_text(f"{COLUMNS}\n{ROW},3.1,more\n")
    assert len(next(csv.reader([f"{ROW},3.1,more"]))) == len(COLUMNS.split(",")) + 1
    with pytest.raises(SystemExit, match="2"):
        main(["validate", "--runs", str(table)])
    assert "line 2: has more cells than the header" in " ".join(capsys.readouterr().err.split())


EXAMPLES = Path(__file__).parents[3] / "examples" / "my_cluster"
LAUNCHES = {
    "pretrain.sh": (),
    "ds_config.json": ("--model", "llama-3-8b", "--gpus", "64"),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_recipe_is_refused_where_there_is_nothing_to_choose(name, capsys):
    words = ["check", str(EXAMPLES / name), "--system", "dgx-h100", *LAUNCHES[name]]
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--recipe", "x"])
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "recipe = 'x': chooses between runs that differ" in " ".join(printed.err.split())


def test_the_name_of_the_only_run_of_a_program_is_a_recipe(tmp_path, capsys):
    program = tmp_path / "config.py"
    program.write_text(
        "from torchtitan.models.llama3 import model_registry\n"
        "def llama3_8b() -> Trainer.Config:\n"
        "    return Trainer.Config(\n"
        "        model_spec=model_registry('8B'),\n"
        "        training=TrainingConfig(local_batch_size=1, seq_len=8192, steps=10),\n"
        "        parallelism=ParallelismConfig(tensor_parallel_degree=2),\n"
        "    )\n"
    )
    words = ["check", str(program), "--system", "dgx-h100", "--gpus", "8", "--accept-unread"]
    main([*words, "--recipe", "llama3_8b", "--json"])
    assert '"tp": 2' in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main([*words, "--recipe", "qwen3"])
    assert "'qwen3': not one of them; give --recipe: llama3_8b" in " ".join(capsys.readouterr().err.split())


def test_one_wrong_setting_is_one_problem(tmp_path, capsys):
    """What is wrong is said once, by the row that reads it strictly."""
    file = tmp_path / "ds.json"
    words = ["check", str(file), "--system", "dgx-h100", "--model", "llama-3-8b", "--gpus", "64"]
    file.write_text('{"zero_optimization": {"stage": "three"}, "train_batch_size": 64}')
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert capsys.readouterr().err.count("zero_optimization.stage = 'three'") == 1


@pytest.mark.parametrize("least", [0, 1])
def test_a_whole_number_says_its_own_bound(least):
    with pytest.raises(InputError, match=f"steps = '-1': must be a whole number of at least {least}"):
        whole_number("steps", "-1", least)
