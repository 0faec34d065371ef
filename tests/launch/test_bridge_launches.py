"""Launches of Megatron-Bridge that name a recipe: what it sets, under the arguments and overrides.

Arguments and weak scaling are those of Megatron-Bridge 0.6.0, scripts/training/run_recipe.py.
"""

import sys

import pytest

import traincast as tc

RUN = "torchrun --nproc-per-node 8 scripts/training/run_recipe.py --recipe {name} --mode pretrain"
NAME = "llama3_8b_pretrain_8gpu_h100_bf16_config"
RECIPE = """
def llama3_8b_pretrain_8gpu_h100_bf16_config():
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Meta-Llama-3-8B").to_megatron_provider()
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.pipeline_model_parallel_size = 1
    cfg.model.context_parallel_size = 1
    cfg.model.seq_length = 8192
    cfg.dataset.seq_length = 8192
    cfg.train.global_batch_size = 64
    cfg.train.micro_batch_size = 1
    cfg.mixed_precision = bf16_with_fp8_current_scaling_mixed()
    return cfg
"""


@pytest.fixture
def launch(tmp_path):
    """Function that writes a script, and a recipe in a part of the package, and returns the script's path."""

    def write(command, part="recipes", package="src/megatron/bridge"):
        folder = tmp_path / package / part / "llama"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "h100.py").write_text(RECIPE, encoding="utf-8")
        path = tmp_path / "job" / "run.sh"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{command}\n", encoding="utf-8")
        return path

    return write


def checked(path, **options):
    return tc.check(path, "dgx-h100", **options)


def test_a_recipe_of_the_repository(launch):
    result = checked(launch(RUN.format(name=NAME)))
    est = result.est
    assert (est.model.name, est.plan.tp, est.plan.dp, est.gbs) == ("llama-3-8b", 2, 4, 64)
    assert est.plan.precision == "fp8-current"
    assert any("h100.py" in note for note in result.reading.assumed)
    assert not any("is not read" in note for note in result.reading.assumed)


def test_a_recipe_of_the_installed_package(launch, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    path = launch(RUN.format(name=NAME), package="site/megatron/bridge")
    assert checked(path).est.plan.tp == 2


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("-tp 4 -mb 2", (4, 2, 8192, 64)),
        ("--tensor_model_parallel_size 4 --seq_length 4096", (4, 1, 4096, 64)),
        ("-tp 4 model.tensor_model_parallel_size=1 train.global_batch_size=16", (1, 1, 8192, 16)),
    ],
)
def test_arguments_are_overrides_that_count_before_them(more, expected, launch):
    est = checked(launch(f"{RUN.format(name=NAME)} {more}")).est
    assert (est.plan.tp, est.plan.mbs, est.model.seq, est.gbs) == expected


def test_another_precision_replaces_that_of_the_recipe(launch):
    assert checked(launch(f"{RUN.format(name=NAME)} mixed_precision=bf16_mixed")).est.plan.precision == "bf16"


def test_a_recipe_of_a_release(tmp_path):
    """Degrees and batch as in catalog/recipes/megatron-bridge.csv, 0.6.0: the recipe was run."""
    path = tmp_path / "run.sh"
    path.write_text(RUN.format(name="llama3_8b_pretrain_8gpu_h100_fp8cs_config") + "\n", encoding="utf-8")
    result = checked(path)
    assert (result.est.plan.tp, result.est.plan.dp, result.est.gbs) == (1, 8, 128)
    assert result.est.plan.precision == "fp8-current"
    assert any("fp8cs_config is that of Megatron-Bridge 0.6.0" in note for note in result.reading.assumed)


@pytest.mark.parametrize(("part", "expected"), [("recipes", 64), ("perf_recipes", 128)])
def test_a_benchmark_keeps_the_sequences_of_each_replica(part, expected, launch):
    """Sixteen GPUs have eight replicas, where the eight of the recipe have four."""
    command = RUN.format(name=NAME).replace("torchrun", "torchrun --nnodes 2")
    assert checked(launch(command, part)).est.gbs == expected


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (RUN.format(name="my_8b_pretrain_config"), "the recipe's file is needed"),
        (RUN.format(name=NAME).replace("--mode pretrain", "--mode dora"), "an adapter other than LoRA"),
    ],
)
def test_refused_by_name(command, words, launch):
    with pytest.raises(tc.InputError) as error:
        checked(launch(command), model="llama-3-8b")
    assert words in "; ".join(error.value.problems)
