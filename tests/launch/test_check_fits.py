"""What `check` says of launches that may not fit; the launches are small ones written here."""

import re

import pytest

import traincast as tc
from traincast.ui.cli.main import main

LAUNCH = """python3 -m MaxText.train MaxText/configs/base.yml model_name=llama3.1-405b
  per_device_batch_size=1 ici_fsdp_parallelism=256 dcn_fsdp_parallelism=2
  remat_policy=custom decoder_layer_input=offload max_target_length=8192 attention=flash
"""


@pytest.fixture
def launch(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(LAUNCH.replace("\n  ", " "), encoding="utf-8")
    return path


def room(launch, share):
    """A machine whose chips have a share of the memory that the launch needs."""
    system = tc.load_system("tpu-v6e-pod")
    return system.with_visible(share * tc.check(launch, system, gpus=512).est.memory_bytes)


def test_a_published_recipe_that_ran_is_not_called_out_of_memory(launch, capsys):
    """tpu-recipes: 405B on two slices of v6e-256, whose chips have 31.25 GiB, in 54.8 s."""
    main(["check", str(launch), "--system", "tpu-v6e-pod", "--gpus", "512"])
    assert re.search(r"(fits|may fit) in\s+31\.2 GiB", capsys.readouterr().out)


@pytest.mark.parametrize(("share", "said"), [(1.5, "fits"), (1.0, "uncertain"), (0.6, "does not fit")])
def test_changes_that_make_it_fit_are_the_cheapest_first(launch, share, said):
    checked = tc.check(launch, room(launch, share), gpus=512)
    assert checked.est.verdict == said
    if said == "fits":
        times = [change.step_seconds for change in checked.changes]
        assert times == sorted(times)
        return
    efforts = [change.change.effort for change in checked.changes]
    assert efforts == sorted(efforts)
    odds = [change.fits_probability for change in checked.changes]
    assert all(each > checked.est.fits_probability for each in odds)


def test_no_best_plan_is_printed_on_top_of_an_uncertain_verdict(launch, capsys):
    from traincast.ui.text import launch as text
    from traincast.ui.text import tables

    tables.show(text.launch(tc.check(launch, room(launch, 1.0), gpus=512)))
    out = " ".join(capsys.readouterr().out.split())
    assert "Uncertain: measure one step. Its peak is the" in out
    assert "The best plan" not in out
    assert "no change of one, two or three settings makes it fit" not in out
    tables.show(text.launch(tc.check(launch, room(launch, 0.6), gpus=512)))
    out = " ".join(capsys.readouterr().out.split())
    assert "The best plan that MaxText can run on these GPUs" in out
    assert "measure one step" not in out


def test_one_rank_is_told_to_leave_the_stage_whose_step_copies_most(tmp_path):
    """DeepSpeed 0.19.8, runtime/zero/stage_1_and_2.py: stage 1 copies what it steps, on one rank too."""
    path = tmp_path / "ds.json"
    path.write_text(
        '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},'
        ' "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 1}}',
        encoding="utf-8",
    )
    checked = tc.check(path, "dgx-h200", model="llama-3-8b", gpus=1, knobs={"recompute": "full"})
    changes = [change for change in checked.changes if change.est.plan.zero == 0]
    assert [change.settings for change in changes] == [(("zero_optimization.stage", 1, 0),)]
    assert changes[0].est.memory_bytes < 0.8 * checked.est.memory_bytes
