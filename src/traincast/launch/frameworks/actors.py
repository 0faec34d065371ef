"""Launches of reinforcement learning, of which the actor's training step is read: verl, OpenRLHF and slime.

The step is forward and backward pass and optimizer of one mini-batch of prompts with their answers, each as
long as it may get. Answers are written, and scored by other models, before it. Settings are translated by
`tables/dialects.toml`, to those of Megatron-LM or of Hugging Face's Trainer.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from traincast.core import InputError
from traincast.launch.frameworks.checkpoints import NAMED_MODEL, model_called
from traincast.launch.frameworks.megatron_script import read_settings
from traincast.launch.scripts.bash import arguments, commands
from traincast.launch.settings.canonical import FULL_LENGTH
from traincast.launch.settings.given import NOTHING, Given
from traincast.launch.settings.settings import Settings, evaluate_text, is_off

GROUPS: Final = (  # of verl's settings, whose members have names of their own
    "actor.megatron.override_transformer_config.",
    "actor.optim.override_optimizer_config.",
    "actor_rollout_ref.",
)
SETTING: Final = re.compile(r"\+*([a-z_]\w*(?:\.\w+)+)=(.*)", re.DOTALL)
AXES: Final = ("tensor_model", "pipeline_model", "context")
NOTE: Final = "the actor's training step alone"


def read_verl(text: str, given: Given = NOTHING) -> Settings:
    """Return the settings of verl's command, which Hydra takes as NAME=VALUE, for FSDP or Megatron-LM."""
    own = Settings()
    words = (word for command in commands(text, given) for word in command)
    for match in filter(None, map(SETTING.fullmatch, words)):
        name = match[1]
        for group in reversed(GROUPS):
            name = name.removeprefix(group)
        own[name] = match[2].strip("'\"")
    length = sum(_number(own, f"data.max_{part}_length", 512) for part in ("prompt", "response"))
    batch = _number(own, "actor.ppo_mini_batch_size", 256) * _number(own, "rollout.n", 1)
    rows = _number(own, "actor.ppo_micro_batch_size_per_gpu", 1)
    ranks = _number(own, "trainer.nnodes", 1) * _number(own, "trainer.n_gpus_per_node", 8)
    if own.is_on("actor.use_dynamic_bsz"):
        tokens = _number(own, "actor.ppo_max_token_len_per_gpu", 16_384)
        rows = _dynamic_rows(own, "actor.megatron.", tokens, length, batch, ranks)
    if is_megatron(text):
        computed: Mapping[str, Any] = {
            "seq_length": length,
            "global_batch_size": batch,
            "micro_batch_size": rows,
        }
    else:
        computed = {"max_length": length, **_steps(batch, rows, ranks), "num_processes": ranks}
    return Settings({**own, **computed})


def is_megatron(text: str) -> bool:
    """Return whether Megatron-LM trains verl's actor."""
    return bool(re.search(r"megatron_trainer|actor\.megatron\.|actor\.strategy=megatron", text))


def read_openrlhf(text: str, given: Given = NOTHING) -> Settings:
    """Return the arguments of the command that starts OpenRLHF, which trains with DeepSpeed."""
    lines = [
        words
        for words in commands(text, given)
        if any("train_" in word or "openrlhf" in word for word in words)
    ]
    own = arguments(lines[-1]) if lines else read_settings(text, given)
    length = _number(own, "max_len") or sum(
        _number(own, f"{part}_max_len", 1024) for part in ("prompt", "generate")
    )
    ranks = _number(own, "actor_num_nodes", 1) * _number(own, "actor_num_gpus_per_node", 8)
    ranks //= max(_number(own, "ring_attn_size", 1) * _number(own, "ds_tensor_parallel_size", 1), 1)
    rows = _number(own, "micro_train_batch_size", 4)
    batch = _number(own, "train_batch_size", 128)
    return Settings({**own, "max_length": length, **_steps(batch, rows, ranks)})


def read_slime(text: str, given: Given = NOTHING) -> Settings:
    """Return the arguments of slime, which trains with Megatron-LM."""
    own = read_settings(text, given)
    length = sum(_number(own, f"rollout_max_{part}_len") for part in ("prompt", "response"))
    prompts = _number(own, "rollout_batch_size")
    samples = _number(own, "n_samples_per_prompt", 1)
    batch = prompts * samples // _number(own, "num_steps_per_rollout", 1)
    usual = {"seq_length": length, "global_batch_size": batch}
    settings = Settings({**{name: value for name, value in usual.items() if value}, **own})
    tokens = _number(own, "max_tokens_per_gpu")
    settings.pop("max_tokens_per_gpu", None)
    if settings.pop("use_dynamic_batch_size", None) and tokens:
        with suppress(InputError):  # what is wrong is said where it is read
            ranks = _number(own, "actor_num_nodes", 1) * _number(own, "actor_num_gpus_per_node", 8)
            length, batch = (_number(settings, name) for name in ("seq_length", "global_batch_size"))
            settings["micro_batch_size"] = _dynamic_rows(own, "", tokens, length, batch, ranks)
    if "model" in given.facts and all("models/" in path for path in own.get("source", ())):
        settings.pop("source", None)  # which describes the model that is given
    return settings


def verl_model(settings: Settings) -> str:
    """Return the model of the catalogue whose checkpoint verl's actor begins with; empty if none is named."""
    path = settings.get(NAMED_MODEL)
    return "" if is_off(path) else model_called("actor_rollout_ref.model.path", str(path))


def assumptions(_: Settings) -> tuple[str, ...]:
    """Return what is assumed of the step."""
    return (NOTE, FULL_LENGTH[None])


def _number(own: Settings, name: str, default: int = 0) -> int:
    """Return a setting as a whole number, also of a sum or product of numbers."""
    computed = evaluate_text(str(own[name]).strip("$()")) if name in own else None
    return computed if isinstance(computed, int) else own.number(name, default=default, least=0)


def _dynamic_rows(own: Settings, group: str, tokens: int, length: int, batch: int, ranks: int) -> int:
    """Return the sequences of a micro-batch of at most so many tokens a rank: as many as divide the batch.

    Context ranks share them (verl's megatron_actor.py, b178a3c; slime's dp_schedule.py, 624b824).
    """
    tp, pp, cp = (_number(own, f"{group}{axis}_parallel_size", 1) for axis in AXES)
    most = tokens * cp // max(length, 1)
    each = batch // max(ranks // max(tp * pp * cp, 1), 1)
    return next((rows for rows in range(min(most, each), 0, -1) if each % rows == 0), 1)


def _steps(batch: int, rows: int, ranks: int) -> Settings:
    """Return the micro-batches of an optimizer step; refuse a batch that they do not divide."""
    if not rows * ranks or batch % (rows * ranks):
        problem = f"a batch of {batch} sequences does not divide over {ranks} ranks by {rows}"
        raise InputError("actor", [problem])
    return Settings(per_device_train_batch_size=rows, gradient_accumulation_steps=batch // (rows * ranks))
