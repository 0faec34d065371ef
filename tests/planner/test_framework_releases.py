"""A framework named with a release searches what that release runs, as its own checks have it."""

import pytest

import traincast as tc
from traincast.planner.frameworks.history import FEATURES, FORMER
from traincast.planner.frameworks.refusals import REFUSALS
from traincast.planner.frameworks.releases import RELEASES, numbers_of
from traincast.planner.frameworks.spaces import FRAMEWORKS, framework
from traincast.ui.cli.main import main

MIXTRAL = {"model": "mixtral-8x7b", "system": "dgx-h100", "gpus": 32, "gbs": 64}
GATED_DELTA = {"model": "qwen3-next-80b-a3b", "system": "dgx-h100", "gpus": 64, "gbs": 64}


def reason(asked, name, locks):
    """Return why a framework has no plan with locks; None where it has one."""
    try:
        found = tc.search(**asked, framework=name, locks=locks)
    except tc.InputError as error:
        return str(error)
    return None if found.candidates else "no candidate"


@pytest.mark.parametrize(
    ("release", "refuses"), [("0.16", False), ("0.17", True), ("0.18", True), ("0.19", True)]
)
def test_recomputed_experts_beside_overlapped_exchange(release, refuses):
    """transformer_config.py has `assert 'moe' not in self.recompute_modules` since 0.17, not in 0.16."""
    locks = {"ep_overlap": True, "recompute": "experts"}
    why = reason(MIXTRAL, f"megatron@{release}", locks | {"ep": 8, "pp": 2})
    assert (why is not None) is refuses
    if refuses:
        assert "recomputation of experts (moe)" in why


@pytest.mark.parametrize(("release", "refuses"), [("0.18", False), ("0.19", True)])
def test_offloaded_parts_of_recomputed_experts(release, refuses):
    """transformer_config.py 0.19.2: "'moe' in recompute_modules wraps the full MoE forward"."""
    choices = {"offload": "expert_fc1+moe_act", "recompute": "experts"}
    assert bool(framework(f"megatron@{release}").find_refusals(choices)) is refuses


@pytest.mark.parametrize(("release", "runs"), [("0.17", False), ("0.18", True), ("0.19", True)])
def test_context_parallelism_of_the_gated_delta_net(release, runs):
    """linear heads are divided by `tp_cp_size` in transformer_config.py since 0.18, by tp alone in 0.17."""
    assert (reason(GATED_DELTA, f"megatron@{release}", {"cp": 2}) is None) is runs


@pytest.mark.parametrize(("release", "runs"), [("0.18", False), ("0.19", True)])
def test_recomputed_norm_of_the_gated_delta_net(release, runs):
    """`gdn_norm_out` is one of the allowed modules in 0.19.2, not in 0.18.0."""
    why = reason(GATED_DELTA, f"megatron@{release}", {"recompute": "gdn_norm_out"})
    assert (why is None) is runs


def test_torchtitan_recomputes_experts_under_dualpipe_v_since_0_3():
    """distributed/dual_pipe_v.py of 0.2.2 raises NotImplementedError; 0.3.0 has no such file."""
    model = tc.load_model("mixtral-8x7b")
    plan = tc.Plan(pp=2, vp=2, dp=16, ep=8, zero=2, schedule="dualpipe-v", recompute="full")
    assert framework("torchtitan").broken(model, plan, 64) == []
    (line,) = framework("torchtitan@0.2").broken(model, plan, 64)
    assert "DualPipeV without recomputation before 0.3" in line
    assert framework("torchtitan@0.2").assumptions == "torchtitan-2025"  # without loss of chunks


def test_mics_went_with_deepspeed_0_19():
    asked = {"model": "gpt-125m", "system": "dgx-h100", "gpus": 16, "gbs": 16}
    assert reason(asked, "deepspeed@0.18", {"replicas": 2}) is None
    assert "keeps no replicas" in reason(asked, "deepspeed", {"replicas": 2})


def test_the_newest_release_is_the_framework_itself():
    for name, releases in RELEASES.items():
        assert framework(f"{name}@{releases.known[-1]}") == FRAMEWORKS[name]
        assert FRAMEWORKS[name].version.startswith(f"{releases.owner} {releases.known[-1]}.")
        for release in releases.known[:-1]:
            older = framework(f"{name}@{release}.1")
            assert older != FRAMEWORKS[name]
            assert (older.label, older.version) == (f"{name}@{release}", f"{releases.owner} {release}")


def test_every_release_of_a_feature_or_refusal_is_known():
    named = [(row.framework, row.release) for row in (*FEATURES, *FORMER)]
    named += [(row.framework, release) for row in REFUSALS for release in (row.since, row.until)]
    for name, release in named:
        assert not release or release in RELEASES[name].known
    assert numbers_of("0.9") < numbers_of("0.17")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("megatron@0.12", "the known releases of Megatron-Core are 0.16, 0.17, 0.18, 0.19"),
        ("megatron@", "the known releases of Megatron-Core are"),
        ("megatron@newest", "the known releases of Megatron-Core are"),
        ("megatron-bridge@0.6", "no releases of megatron-bridge are known"),
        ("trl@1.16", "no releases of trl are known"),
    ],
)
def test_a_release_that_is_not_known_is_refused_by_name(name, said):
    with pytest.raises(tc.InputError, match=f"framework = {name}: {said}"):
        tc.search("gpt-125m", "dgx-h100", gpus=8, gbs=8, framework=name)


def test_the_answer_says_the_release(capsys):
    main(["plan", "gpt-125m", "--system", "dgx-h100", "--gpus", "8", "--framework", "mcore@0.17", "--why"])
    printed = capsys.readouterr()
    assert "candidates of megatron@0.17" in printed.out
    assert "plans and rules of megatron (Megatron-Core 0.17)" in " ".join(printed.err.split())
