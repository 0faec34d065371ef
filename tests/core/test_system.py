"""Systems and models: impossible ones are refused with all mistakes; figures are accessed by their paths."""

from dataclasses import replace

import numpy as np
import pytest

import traincast as tc
from traincast.core.nomenclature import COLUMNS
from traincast.planner.question import Question
from traincast.planner.studies.sweep import define_study, fields_of, with_shape


def test_a_system_has_two_tiers_and_the_inner_one_a_size(h200):
    fast, slow = h200.tiers
    for tiers in (
        (),
        (fast,),
        (fast, fast, slow),
        (slow, slow),
        (fast, replace(slow, size=8)),
    ):
        with pytest.raises(tc.InputError, match="must be at least two"):
            replace(h200, tiers=tiers)
    with pytest.raises(tc.InputError, match="size = 0: must be a whole number of at least 1"):
        replace(fast, size=0)


def test_all_wrong_figures_of_a_system_are_reported(h200):
    wrong = {
        "accelerator.matrix_flops": 0.0,
        "accelerator.hbm_bytes": -1.0,
        "network.1.bandwidth": float("nan"),
        "network.0.latency": -1e-6,
    }
    with pytest.raises(tc.InputError) as caught:
        h200.with_figures(wrong)
    assert {problem.partition(" = ")[0] for problem in caught.value.problems} == set(wrong)
    assert h200.with_figures({"network.0.latency": 0.0}).fast.latency == 0  # an ideal network


def test_figures_are_reached_by_their_path(h200):
    figures = h200.figures()
    assert figures["accelerator.hbm_bytes"] == 141e9  # the paper's table of systems
    assert figures["network.1.bandwidth"] == 50e9
    changed = h200.with_figures({"network.1.bandwidth": 1.0, "accelerator.hbm_bytes": 2.0})
    assert changed.slow.bandwidth == 1.0
    assert changed.with_figures(figures) == h200
    assert h200.machines() == 1
    machines = h200.with_figures({"accelerator.hbm_bytes": np.array([1.0, 2.0, 3.0])})
    assert machines.machines() == 3
    assert machines.take(1).accelerator.hbm_bytes == 2.0
    assert machines.take(1).columns() == {}


def test_wrong_figures_of_the_cluster_are_reported(h200):
    with pytest.raises(tc.InputError) as caught:
        replace(h200, price=-1.0, failure_hours=0.0)
    assert {problem.partition(" = ")[0] for problem in caught.value.problems} == {"price", "failure_hours"}


def test_figures_of_a_third_tier_and_of_lower_precision_vary():
    dgx = tc.load_system("dgx-h100")
    paths = fields_of(dgx)
    assert {
        "network.1.size",
        "network.2.bandwidth",
        "network.2.latency",
        "accelerator.fp8_flops",
        "accelerator.power",
    } <= set(paths)
    assert dgx.with_figures({"network.2.bandwidth": 1.0}).tiers[2].bandwidth == 1.0
    assert set(dgx.figures()) - set(COLUMNS) == {"network.0.ports"}  # always 1
    fields = {"network.1.size": [256.0, 512.0], "accelerator.fp8_flops": [1e15, 2e15]}
    question = Question(gpus=[512], strategy="1d", top=1)
    study = define_study(["gpt3-175b"], [dgx], question, batches=512, vary=[fields])
    assert study.points == 2


def test_a_figure_that_a_file_leaves_out_can_vary(h200):
    """nvlink of the paper's machines has no start-up of its own: a sweep gives it one."""
    assert "network.0.launch" not in h200.figures()
    assert "network.0.launch" in fields_of(h200)
    assert "network.0.ports" not in fields_of(h200)
    frame = tc.study(
        models=["gpt3-175b"], systems=[h200], gpus=[64], strategies=["1d"], gbs=64,
        vary=[{"network.0.launch": [1e-6, 1e-2]}], assumptions="calibrated",
    ).frame  # fmt: skip
    quick, slow = frame["step_seconds"]
    assert quick < slow


def test_the_taper_of_a_network_varies_and_is_at_least_1(h200):
    assert COLUMNS["network.1.taper"].meaning == (
        "bandwidth offered to the second tier from below, relative to that upward (oversubscription)"
    )
    assert "network.0.taper" not in COLUMNS
    cases = {
        "models": ["gpt3-175b"], "systems": [h200], "gpus": [64], "strategies": ["1d"], "gbs": 64,
    }  # fmt: skip
    varied = tc.study(**cases, vary=[{"network.1.taper": [1.0, 4.0]}]).frame["step_seconds"]
    halved = tc.study(**cases, vary=[{"network.1.bandwidth": [50e9, 12.5e9]}]).frame["step_seconds"]
    assert varied.to_list() == halved.to_list()
    with pytest.raises(tc.InputError, match=r"network\.1\.taper = .*: must be at least 1"):
        h200.with_figures({"network.1.taper": 0.5})


def test_a_job_can_use_a_part_of_each_domain():
    """64 of the 72 of an NVL72 rack: a leaf still joins 8 racks, 512 of its accelerators are the job's."""
    racks = tc.load_system("gb200-nvl72")
    part = with_shape(racks, {"network.0.used": 64})
    assert (part.fast_domain, part.domain(2304), racks.domain(2304)) == (64, 64, 72)
    # what divides 2,048 is 64 in any case
    plan, gbs = tc.Plan(tp=8, dp=256), 2048
    whole, partial = (tc.estimate("llama-3-8b", system, plan, gbs=gbs) for system in (racks, part))
    assert partial.step_seconds == whole.step_seconds
    assert [row.near for row in partial.group_rows()] == [
        {"nvlink": 8, "leaf": 8},
        {"nvlink": 8, "leaf": 64},
    ]
    # of a leaf the job has two racks; more of its ring is between leaves
    two = with_shape(part, {"network.1.used": 128})
    dp = tc.estimate("llama-3-8b", two, plan, gbs=gbs).group_rows()[1]
    assert (dp.near, dp.crosses) == ({"nvlink": 8, "leaf": 16}, "spine")
    for path, value, allowed in (
        ("network.0.used", 80, "at most 72"),
        ("network.1.used", 96, "a multiple of 64, at"),
    ):
        with pytest.raises(tc.InputError, match=rf"{path} = {value}: must be {allowed}"):
            with_shape(part, {path: value})


def test_a_study_varies_rails_congestion_and_the_part_that_is_used():
    frame = tc.study(
        models=["llama-3-8b"], systems=["gb200-nvl72"], gpus=[288], strategies=["1d"], gbs=288,
        vary=[
            {"network.0.used": [72, 36]}, {"network.1.rails": [1, 4]}, {"network.2.taper": [1.0, 8.0]},
            {"network.1.congestion": [0.01, 0.2]},
        ],
    ).frame  # fmt: skip
    assert len(frame) == 16
    assert not frame["step_seconds"].is_null().any()
    least = {used: frame.filter(frame["network.0.used"] == used)["step_seconds"].min() for used in (72, 36)}
    assert least[72] < least[36]


def test_an_explanation_of_a_system_of_three_tiers():
    result = tc.search(
        tc.load_model("gpt3-175b"), tc.load_system("dgx-h100"), gpus=512, gbs=512, strategy="1d"
    )
    assert "slow network (spine)" in result.explain().sensitivity


def test_a_model_is_of_whole_numbers_and_its_heads_divide_its_width(gpt):
    with pytest.raises(tc.InputError) as caught:
        replace(gpt, layers=0, seq=2.5)
    assert [problem.partition(":")[0] for problem in caught.value.problems] == ["layers = 0", "seq = 2.5"]
    with pytest.raises(tc.InputError, match="heads = 7: must divide hidden = 25600"):
        replace(gpt, heads=7)


def test_custom_assumptions_do_not_have_the_name_of_the_paper(gpt, h200):
    custom = tc.Assumptions().with_values({"kernels.launch_seconds": 0.0})
    assert custom.name == "custom"
    assert (
        tc.estimate(gpt, h200, tc.Plan(tp=8, dp=2), gbs=4096, assumptions=custom).assumptions.name == "custom"
    )
