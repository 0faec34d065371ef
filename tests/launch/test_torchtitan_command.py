"""torchtitan's command line: configurations of 0.3.0 by module and name, under overrides.

The table of configurations is what the installed package returns (tools/torchtitan_configs.py).
"""

import pytest

import traincast as tc
from traincast.launch.formats import READERS
from traincast.launch.reader import read

TRAIN = "torchrun --nproc_per_node=8 -m torchtitan.train"
# torchtitan 0.3.0, models/llama3/config_registry.py, in short
REGISTRY = """
from torchtitan.config import ParallelismConfig, TrainingConfig
from torchtitan.trainer import Trainer
from . import model_registry

def qwen35_4b() -> Trainer.Config:
    return Trainer.Config(model_spec=model_registry("4B"), training=TrainingConfig(local_batch_size=2))

def llama3_8b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"), training=TrainingConfig(local_batch_size=3, seq_len=1024)
    )
"""


@pytest.fixture
def launch(tmp_path):
    """Function that writes a script and returns its path."""

    def write(text):
        path = tmp_path / "run.sh"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def refusal(path):
    with pytest.raises(tc.InputError) as error:
        tc.check(path, "dgx-h100")
    return "; ".join(error.value.problems)


@pytest.mark.parametrize(
    "command",
    [
        f"{TRAIN} --module llama3 --config llama3_8b",
        f"{TRAIN} --config=llama3_8b --module=torchtitan.models.llama3",
        "NGPU=8 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh",
        "./run_train.sh --module llama3 --config llama3_8b",
    ],
)
def test_a_configuration_that_comes_with_it(command, launch):
    """llama3_8b has one sequence of 8,192 tokens on each rank, and per-op recomputation."""
    checked = tc.check(launch(command + "\n"), "dgx-h100")
    est = checked.est
    assert (est.model.name, est.model.seq, est.plan.dp, est.plan.mbs) == ("llama-3-8b", 8192, 8, 1)
    assert (est.plan.recompute, est.plan.zero) == ("per-op", 3)
    assert "what the overrides leave is as in llama3_8b of torchtitan 0.3.0" in checked.reading.assumed


def test_overrides(launch):
    text = (
        f"{TRAIN} --module llama3 --config llama3_70b --parallelism.tensor-parallel-degree 4"
        " --training.local_batch_size=2 --compile.no-enable --training.seq_len 4096\n"
    )
    checked = tc.check(launch(text), "dgx-h100")
    plan = checked.est.plan
    assert (plan.tp, plan.dp, plan.mbs, checked.est.model.seq) == (4, 2, 2, 4096)
    assert checked.est.assumptions.name == "torchtitan-2025+compiled=false+loss=chunked"


def test_a_registry_beside_the_script_counts_first(launch, tmp_path):
    folder = tmp_path / "torchtitan/models/llama3"
    folder.mkdir(parents=True)
    (folder / "config_registry.py").write_text(REGISTRY, encoding="utf-8")
    est = tc.check(launch(f"{TRAIN} --module llama3 --config llama3_8b\n"), "dgx-h100").est
    assert (est.plan.mbs, est.model.seq) == (3, 1024)


def test_a_flavour_of_another_model_is_not_taken_for_one_of_the_same_name(tmp_path):
    """qwen3_5's 4B was read as qwen3's: the function's name begins with neither of the two."""
    path = tmp_path / "config_registry.py"
    path.write_text(REGISTRY, encoding="utf-8")
    with pytest.raises(tc.InputError, match="4B"):
        tc.check(path, "dgx-h100", recipe="qwen35_4b", gpus=8)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"{TRAIN} --module qwen3_5 --config qwen35_27b", "qwen3_5 27B: no model of the catalogue"),
        (f"{TRAIN} --module llama3 --config llama3_9b", "--config llama3_9b: no configuration of torchtitan"),
        (f"{TRAIN} --module mine --config my_8b", "--module mine --config my_8b: no configuration"),
        (f"{TRAIN} --module kimi_k2_7 --config moonlight_16b_a3b", "another optimizer"),
        (f"{TRAIN} --module llama3 --config llama3_8b activation-checkpoint:full-ac", "another class"),
        (
            "CONFIG_FILE=a.toml NGPU=16 ./run_train.sh --training.local_batch_size 2",
            "torchtitan's command line",
        ),
    ],
)
def test_refused_by_name(command, words, launch):
    assert words in refusal(launch(command + "\n"))


def test_a_muon_of_a_configuration_is_not_taken_for_adam(tmp_path):
    """models/kimi_k2_7/config_registry.py: groups of parameters name their optimizer."""
    text = REGISTRY.replace(
        "training=TrainingConfig(local_batch_size=3, seq_len=1024)",
        'optimizer=OptimizersContainer.Config(param_groups=[ParamGroupConfig(optimizer_name="DistMuon")])',
    )
    path = tmp_path / "config_registry.py"
    path.write_text(text, encoding="utf-8")
    reading = read(path, READERS, given=tc.launch.settings.given.Given(recipe="llama3_8b"))
    assert [each.setting for each in reading.unread] == ["optimizer.name"]
