"""NeMo 2's programs; defaults of recipes are those of NeMo v2.4.0, other expected values are by hand."""

import pytest

import traincast as tc

USER = """
import nemo_run as run
from nemo.collections import llm

raise SystemExit("programs are parsed, never run")


def configure(nodes: int = 2):
    recipe = llm.llama3_8b.pretrain_recipe(name="mine", num_nodes=nodes, num_gpus_per_node=8)
    recipe.trainer.strategy.tensor_model_parallel_size = 2
    recipe.trainer.strategy.sequence_parallel = True
    recipe.data.global_batch_size = 256
    MORE
    return recipe


def start():
    recipe = configure(nodes=4)
    run.run(recipe)
"""
OWN = """
import nemo_run as run
from nemo import lightning as nl
from nemo.collections import llm


def trainer(tensor_parallelism: int = 2, nodes: int = 1):
    strategy = run.Config(nl.MegatronStrategy, tensor_model_parallel_size=tensor_parallelism)
    return run.Config(nl.Trainer, devices=8, num_nodes=nodes, plugins=bf16_mixed(), strategy=strategy)


def pretrain_recipe(nodes: int = 2, performance_mode: bool = False):
    recipe = run.Partial(
        llm.pretrain,
        model=run.Config(llm.LlamaModel, config=run.Config(llm.Llama3Config8B)),
        trainer=trainer(nodes=nodes),
        data=run.Config(llm.MockDataModule, seq_length=4096, global_batch_size=128, micro_batch_size=2),
    )
    if performance_mode:
        recipe.trainer.strategy.tensor_model_parallel_size = 8
    return recipe


def finetune_recipe(peft_scheme="lora"):
    recipe = default_finetune_recipe(run.Config(llm.LlamaModel, config=run.Config(llm.Llama3Config8B)), "x")
    if peft_scheme is None:
        recipe.trainer.strategy.tensor_model_parallel_size = 4
    elif peft_scheme.lower() in ["lora", "dora"]:
        recipe.peft = run.Config(PEFT_STR2CLS[peft_scheme.lower()])
        recipe.peft.dim = 8
    return recipe
"""


def est_of(tmp_path, text, **given):
    path = tmp_path / "run.py"
    path.write_text(text, encoding="utf-8")
    return tc.check(path, "dgx-h100", **given).est


def test_a_factory_of_nemo_with_changes(tmp_path):
    """The run of 4 nodes, which another function begins: context parallelism 2 is the factory's."""
    est = est_of(tmp_path, USER.replace("MORE", "pass"))
    plan = est.plan
    assert (est.model.name, est.model.seq, est.gbs) == ("llama-3-8b", 8192, 256)
    assert (plan.tp, plan.cp, plan.dp, plan.mbs, plan.sp, plan.zero) == (2, 2, 8, 1, True, 1)


def test_recipes_of_a_file(tmp_path):
    """A branch whose condition is a default that is known is followed, or not."""
    est = est_of(tmp_path, OWN, recipe="pretrain_recipe")
    assert (est.plan.tp, est.plan.dp, est.plan.mbs, est.gbs, est.model.seq) == (2, 8, 2, 128, 4096)
    tuned = est_of(tmp_path, OWN, recipe="finetune_recipe")
    assert tuned.model.adapters.rank == 8
    assert (tuned.plan.tp, tuned.plan.dp, tuned.gbs, tuned.model.seq) == (1, 8, 128, 2048)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("recipe = tune(recipe)", "condition = tune: not read"),
        ("if fast(nodes): recipe.trainer.strategy.context_parallel_size = 4", "condition = fast(nodes)"),
        ("recipe.trainer.strategy.pipeline_model_parallel_size = STAGES", "give it with --set STAGES=…"),
        ("recipe.trainer.plugins = bf16_with_new_mixed()", "plugins = bf16_with_new_mixed: not read"),
    ],
)
def test_what_is_not_followed_is_refused_by_name(more, said, tmp_path):
    with pytest.raises(tc.InputError) as caught:
        est_of(tmp_path, USER.replace("MORE", more))
    assert said in str(caught.value)


def test_a_function_of_a_file_beside_is_followed(tmp_path):
    """By hand: context parallelism 4 in place of the factory's 2."""
    body = "    recipe.trainer.strategy.context_parallel_size = length\n    return recipe\n"
    (tmp_path / "tuning.py").write_text(f"def tune(recipe, length=8):\n{body}", encoding="utf-8")
    text = USER.replace("MORE", "recipe = tuning.tune(recipe, length=4)")
    assert est_of(tmp_path, f"import tuning\n{text}").plan.cp == 4


TRAINER = """
def qwen2_trainer(nodes=4):
    return run.Config(nl.Trainer, num_nodes=nodes, devices=8, strategy=run.Config(nl.MegatronStrategy,
        tensor_model_parallel_size=8, pipeline_model_parallel_size=4))
"""


def test_a_trainer_of_a_file_beside_is_followed_and_else_named(tmp_path):
    """NVIDIA/NeMo v2.4.0, recipes/qwen2.py, qwen25_72b.py: no overlap where the strategy has no `ddp`."""
    text = (
        "from .qwen2 import qwen2_trainer\ndef pretrain_recipe():\n    return run.Partial(pretrain, "
        "model=run.Config(QwenModel, config=run.Config(Llama3Config70B)), trainer=qwen2_trainer(), "
        "data=run.Config(MockDataModule, seq_length=4096, global_batch_size=32, micro_batch_size=2))\n"
    )
    with pytest.raises(tc.InputError, match="condition = qwen2_trainer: not read"):
        est_of(tmp_path, text)
    (tmp_path / "qwen2.py").write_text(TRAINER, encoding="utf-8")
    plan = est_of(tmp_path, text).plan
    assert (plan.tp, plan.pp, plan.gpus, plan.dp_overlap) == (8, 4, 32, False)
    tuned = est_of(tmp_path, OWN, recipe="finetune_recipe").plan  # recipes/finetune_default.py
    assert not tuned.dp_overlap


def test_hosts_with_grace_processors_have_a_stack_of_their_own(tmp_path):
    path = tmp_path / "run.py"
    path.write_text(USER.replace("MORE", "pass"), encoding="utf-8")
    stacks = {tc.check(path, name, gpus=8).est.assumptions.name for name in ("dgx-h100", "gb200-nvl72")}
    assert stacks == {"nemo-2025", "nemo-2025-grace"}


def test_factories_that_are_not_known_are_refused_by_name(tmp_path):
    text = USER.replace("llama3_8b", "yi_9b").replace("MORE", "pass")
    with pytest.raises(tc.InputError, match=r"llm\.yi_9b\.pretrain_recipe: the defaults .* are not known"):
        est_of(tmp_path, text)
