"""A launch is held to a release of its framework: to what that takes, and to what it refuses."""

import pytest

import traincast as tc

MIXTRAL = """torchrun --nnodes 4 --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096
 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --swiglu
 --seq-length 4096 --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 64 --bf16
 --num-experts 8 --expert-model-parallel-size 8 --moe-router-topk 2 --moe-grouped-gemm
 --moe-token-dispatcher-type alltoall --overlap-moe-expert-parallel-comm --normalization RMSNorm
 --recompute-granularity selective --recompute-modules moe --disable-bias-linear --vocab-size 32000
 --untie-embeddings-and-output-weights --position-embedding-type rope --use-distributed-optimizer
 {}
"""
TOML = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 4096
"""
REFUSED = "Megatron-Core {} refuses this launch; the answer is as if it ran: {}"


@pytest.fixture
def lines(tmp_path):
    """Return a function: what is said of a launch at a release."""

    def said(text, framework, name="run.sh", **more):
        path = tmp_path / name
        path.write_text(text.replace("\n ", " ") if name.endswith(".sh") else text, encoding="utf-8")
        return tc.check(path, "dgx-h100", framework=framework, **more).reading.assumed

    return said


@pytest.mark.parametrize(
    ("release", "refuses"), [("0.16", False), ("0.17", True), ("0.18.2", True), ("0.19", True)]
)
def test_a_release_refuses_what_its_checks_refuse(lines, release, refuses):
    """transformer_config.py has `assert 'moe' not in self.recompute_modules` since 0.17, not in 0.16.1."""
    said = [
        line
        for line in lines(MIXTRAL.format(""), f"megatron@{release}")
        if "recomputation of experts" in line
    ]
    assert bool(said) is refuses
    assert all(line.startswith(f"Megatron-Core {release[:4]}") for line in said)


@pytest.mark.parametrize(
    ("given", "since"),
    [
        ("--moe-hybridep-num-sms-preprocessing 8", "0.18"),  # arguments.py of core_v0.18.2, not of 0.17.1
        ("--activation-offload-fraction 0.5", "0.19"),  # of core_v0.19.2, not of 0.18.2
    ],
)
def test_a_release_lacks_the_arguments_that_came_later(lines, given, since):
    for release in ("0.16", "0.17", "0.18", "0.19"):
        said = lines(MIXTRAL.format(given), f"mcore@{release}")
        line = REFUSED.format(release, f"{given}: it has no such argument")
        assert (line in said) is (float(release) < float(since)), release


def test_a_release_lacks_values_that_came_later(lines):
    """Choices of `--cuda-graph-impl` in megatron/training/arguments.py: full_iteration since 0.18."""
    given = "--cuda-graph-impl full_iteration"
    line = REFUSED.format("0.17", f"{given}: must be one of none, local, transformer_engine")
    assert line in lines(MIXTRAL.format(given), "megatron@0.17")
    assert not any(given in line for line in lines(MIXTRAL.format(given), "megatron@0.18"))


def test_plans_that_are_searched_are_those_of_the_release(tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(MIXTRAL.format("").replace("\n ", " "), encoding="utf-8")
    assert tc.check(path, "dgx-h100", framework="megatron@0.17").found.framework.label == "megatron@0.17"
    assert tc.check(path, "dgx-h100").found.framework.label == "megatron"


def test_files_of_torchtitan_are_of_some_releases(lines):
    """config/manager.py reads TOML in torchtitan 0.2.2; that of 0.3.0 takes --module and --config."""
    line = (
        "torchtitan 0.3.0 refuses this launch; the answer is as if it ran: files of this kind are of release"
    )
    assert f"{line} 0.2" in lines(TOML, "torchtitan@0.3", "run.toml", gpus=16)
    assert not any("refuses" in each for each in lines(TOML, "torchtitan@0.2", "run.toml", gpus=16))


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ("torchtitan@0.2", "framework = torchtitan@0.2: this is a launch of Megatron-LM"),
        ("megatron@0.14", "framework = megatron@0.14: the known releases of Megatron-Core are 0.16"),
        ("nemo@2.4", "framework = nemo@2.4: no releases of nemo are known, only of megatron"),
        ("megatrom@0.17", "unknown framework 'megatrom'"),
    ],
)
def test_other_releases_are_refused(lines, asked, problem):
    with pytest.raises(tc.InputError) as error:
        lines(MIXTRAL.format(""), asked)
    assert problem in str(error.value)
