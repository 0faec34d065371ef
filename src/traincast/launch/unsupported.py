"""Launches that are recognised but not supported: files of other programs, and training other than of decoder-only models.

A file of another program is recognised by keys that only this program has, since it may share many with a supported format.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from traincast.core.errors import InputError
from traincast.launch.mapping import Settings, is_off
from traincast.launch.unread_settings import split_names

KEY: Final = re.compile(
    r"(?m)(?:^[ \t]*(?:export |- )?|[{,\s])(?:--([A-Za-z_][\w.-]*)|[\"']?([A-Za-z_][\w.-]*)[\"']?[ \t]*[:=])"
)  # keys of YAML, JSON and Python, variables, and arguments
COMMENT: Final = re.compile(r"(?m)(?:^|\s)(?:#(?!SBATCH)|//).*$")


@dataclass(frozen=True)
class UnsupportedProgram:
    """Program whose files are not supported.

    Parameters
    ----------
    title : str
        Its name.
    keys : tuple of str
        Keys that only its files have, dashes as underscores; ``*`` stands for anything.
    least : int
        How many of them identify the program.
    """

    title: str
    keys: tuple[str, ...]
    least: int = 2

    def fits(self, keys: Iterable[str]) -> bool:
        """Return whether a file's keys are those of this program."""
        names = set(keys)
        return sum(any(fnmatchcase(name, key) for name in names) for key in self.keys) >= self.least


UNSUPPORTED_PROGRAMS: Final = (
    UnsupportedProgram(
        "gpt-neox",
        split_names("""
        pipe_parallel_size no_weight_tying gpt_j_residual gpt_j_tied pos_emb output_layer_parallelism rotary_pct
        checkpoint_factor output_layer_init_method scaled_upper_triang_masked_softmax_fusion attention_config
        use_bias_in_attn_linear use_bias_in_norms train_data_paths user_script is_pipe_parallel
    """),
    ),
    UnsupportedProgram(
        "verl (reinforcement learning)",
        split_names("""
        actor_rollout_ref.* algorithm.adv_estimator trainer.critic_warmup actor_rollout_ref
    """),
    ),
    UnsupportedProgram(
        "OpenRLHF (reinforcement learning)",
        split_names("""
        actor_num_gpus_per_node vllm_num_engines ref_num_gpus_per_node micro_rollout_batch_size
    """),
    ),
    UnsupportedProgram(
        "NeMo-RL (reinforcement learning)",
        split_names("grpo num_prompts_per_step num_generations_per_prompt policy"),
    ),
    UnsupportedProgram(
        "axolotl",
        split_names("""
        base_model sequence_len sample_packing gradient_checkpointing micro_batch_size val_set_size adapter
    """),
        3,
    ),
    UnsupportedProgram(
        "LLaMA-Factory", split_names("finetuning_type cutoff_len dataset_dir template stage"), 3
    ),
    UnsupportedProgram(
        "Hugging Face's Trainer",
        split_names("""
        per_device_train_batch_size per_device_eval_batch_size model_name_or_path num_train_epochs max_seq_length
        lr_scheduler_type dataloader_num_workers gradient_checkpointing
    """),
    ),
    UnsupportedProgram(
        "OLMo",
        split_names("""
        softmax_auxiliary_loss remote_save_folder sharded_checkpointer save_num_unsharded_checkpoints_to_keep reset_trainer_state
    """),
    ),
    UnsupportedProgram(
        "llm-foundry (Composer)",
        split_names("""
        device_train_microbatch_size global_train_batch_size max_duration train_loader device_eval_batch_size
    """),
    ),
    UnsupportedProgram(
        "MaxText",
        split_names("""
        per_device_batch_size ici_fsdp_parallelism ici_tensor_parallelism dcn_data_parallelism remat_policy base_emb_dim
    """),
    ),
    UnsupportedProgram(
        "NeMo",
        split_names("""
        exp_manager megatron_amp_O2 transformer_block_type activations_checkpoint_granularity nsys_profile trainer
    """),
    ),
    UnsupportedProgram("Primus", split_names("work_group pre_trainer overrides modules exp_name")),
    UnsupportedProgram(
        "MLPerf Training", split_names("DGXNNODES DGXSYSTEM MINIBS DGXNGPU MLPERF_* TARGET_LOG_PPL")
    ),
    UnsupportedProgram(
        "torchtune", split_names("_component_ tokenizer._component_ checkpointer max_steps_per_epoch")
    ),
)


@dataclass(frozen=True)
class UnsupportedTraining:
    """Training other than pre-training of decoder-only models.

    Parameters
    ----------
    title : str
        Its name in messages.
    programs : str
        Pattern of the programs that train it.
    settings : tuple of str
        Names of settings that only it has; ``*`` stands for anything.
    values : mapping of str to str
        Patterns of values that only it has, by setting.
    """

    title: str
    programs: str = r"(?!)"
    settings: tuple[str, ...] = ()
    values: Mapping[str, str] | None = None

    def signs(self, words: Iterable[str], settings: Settings) -> Iterator[str]:
        """Yield the programs, settings and values that identify it."""
        for word in words:
            if match := re.search(self.programs, word):
                yield match[0]
        for name, value in settings.items():
            if not is_off(value) and any(fnmatchcase(name, pattern) for pattern in self.settings):
                yield name
            if (pattern := (self.values or {}).get(name)) and re.search(pattern, _text(value), re.IGNORECASE):
                yield f"{name} {_text(value)[:60]}"


UNSUPPORTED_TRAININGS: Final = (
    UnsupportedTraining(
        "reinforcement learning",
        r"\b(?:train_rl|main_ppo|train_ppo\w*|train_grpo\w*)(?:\.py)?\b|verl\.trainer\.\w+|openrlhf\.cli\.\w+",
        split_names("""
            rollout_* num_rollout actor_num_* critic_num_* advantage_estimator n_samples_per_prompt kl_loss_coef perform_rl_step
            grpo_* ppo_* rl_* langrl_* hybrid_engine.enabled colocate sglang_* vllm_num_engines
        """),
    ),
    UnsupportedTraining(
        "a multimodal, vision or diffusion model",
        r"\b(?:pretrain_(?:vlm|vision\w*|multimodal\w*|mimo\w*)|train_(?:vlm|vision|llava)\w*)\.py\b|examples/multimodal/\S*\.py",
        split_names("""
            img_h img_w patch_dim vision_* *_vision_* freeze_ViT freeze_vit freeze_vision* num_image_* use_tiling use_tile_tags
            max_num_tiles pixel_shuffle* language_model_type img_embedding_idx image_token* num_frames dino_* model.vision_*
            model.*_vision_* swin_backbone_type allow_missing_vision_projection_checkpoint audio_* encoder.* training.img_size
            training.classifier_free_guidance_prob
        """),
        {
            "model.name": r"^(?:flux|\w*vlm|llama3_siglip\w*|wan)$",
            "recipe": r"(?:^|_)(?:vlm?|flux|wan)(?:_|$)",
        },
    ),
    UnsupportedTraining(
        "a model with retrieval (RETRO, ICT)",
        r"\bpretrain_(?:retro|ict|realm)\.py\b",
        split_names("retro_* ict_* biencoder_* block_data_path retriever_* titles_data_path"),
    ),
    UnsupportedTraining(
        "an encoder-decoder model (T5)",
        r"\bpretrain_(?:t5|bart|ul2)\w*\.py\b",
        split_names("decoder_num_layers decoder_seq_length"),
        {"recipe": r"(?:^|_)t5(?:_|$)"},
    ),
    UnsupportedTraining(
        "an encoder model (BERT)",
        r"\bpretrain_bert\w*\.py\b",
        split_names("bert_* mask_prob short_seq_prob"),
        {"tokenizer_type": r"^BertWordPiece"},
    ),
    UnsupportedTraining(
        "a model with Mamba or hybrid layers",
        r"\bpretrain_(?:mamba|hybrid)\w*\.py\b",
        split_names("""
            hybrid_layer_pattern hybrid_override_pattern hybrid_attention_ratio hybrid_mlp_ratio is_hybrid_model mamba_*
            model.model_config.is_mamba_config model.model_config.ssm_cfg* mtp_hybrid_override_pattern
        """),
        dict.fromkeys(("spec", "model_spec", "recipe"), r"(?:\b|_)(?:mamba|hybrid|ssm|nemotronh)"),
    ),
)


UNAMBIGUOUS_SETTINGS: Final = split_names("""
    decoder_num_layers decoder_seq_length hybrid_layer_pattern hybrid_override_pattern is_hybrid_model retro_add_retriever
    perform_rl_step vision_pretraining
""")  # off in every other training: they identify it even where a log lists all settings with their defaults


def keys_of(text: str) -> set[str]:
    """Return the keys and arguments of a text, with dashes as underscores and without those in comments.

    Examples
    --------
    >>> sorted(keys_of('{"pipe-parallel-size": 1,  # stages' + chr(10) + ' "pos_emb": "rotary"}'))
    ['pipe_parallel_size', 'pos_emb']
    """
    return {(flag or key).replace("-", "_") for flag, key in KEY.findall(COMMENT.sub("", text))}


def check_program(text: str, path: str) -> None:
    """Raise if a file is of an unsupported program.

    Raises
    ------
    InputError
        If it is one.
    """
    keys = keys_of(text)
    for program in UNSUPPORTED_PROGRAMS:
        if program.fits(keys):
            raise InputError(path, [f"is a launch of {program.title}, which is not supported yet"])


def check_training_kind(
    words: Iterable[str], settings: Settings, path: str, spelled: Callable[[str], str] = str
) -> None:
    """Raise if the training is not pre-training of a decoder-only model.

    Parameters
    ----------
    words : iterable of str
        Words of the commands.
    settings : Settings
        All settings.
    path : str
        The file, for the message.
    spelled : callable
        A setting's name as the framework spells it.

    Raises
    ------
    InputError
        With the kind of training, and what identifies it.
    """
    commands = list(words)
    for kind in UNSUPPORTED_TRAININGS:
        signs = list(dict.fromkeys(kind.signs(commands, settings)))
        if signs:
            signs_text = ", ".join(_spelled(sign, settings, spelled) for sign in signs[:3])
            raise InputError(path, [f"is a launch of {kind.title}, which is not supported: {signs_text}"])


def _spelled(sign: str, settings: Settings, spelled: Callable[[str], str]) -> str:
    """Return a sign with its setting as the framework spells it."""
    name, blank, value = sign.partition(" ")
    return (spelled(name) if name in settings else name) + blank + value


def _text(value: Any) -> str:
    """Return a value as text."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
