"""All formats of launches, by name. To detect the format of a text they are tried in this order.

A framework is added with a table in `tables`, a module of functions of computed rows, and a line here.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from traincast.core import ErrorCollector
from traincast.launch.frameworks import (
    accelerate,
    actors,
    automodel,
    deepspeed,
    dialects,
    huggingface,
    llm_foundry,
    maxtext,
    megatron,
    megatron_bridge,
    megatron_script,
    ms_swift,
    nanotron,
    torchtitan,
    torchtune,
    trainer_software,
    verl_sft,
    write_bash,
)
from traincast.launch.python import lightning, recipes, torchtitan_command, torchtitan_config
from traincast.launch.python import nemo as nemo_programs
from traincast.launch.python import trainer as trainer_programs
from traincast.launch.settings import beside
from traincast.launch.settings.canonical import DIVIDED
from traincast.launch.settings.facts import Facts, as_facts
from traincast.launch.settings.format import Format, Reader, alone, load_format
from traincast.launch.settings.settings import Settings
from traincast.launch.settings.table import ComputedRow, Row
from traincast.launch.settings.unread_settings import UnreadRules
from traincast.planner import EQUAL_SHARDS, FRAMEWORKS, SHARDED_KV_HEADS, UNTIED_PIPELINE, WHOLE_EXPERTS

# Settings of DeepSpeed's configuration that Megatron-DeepSpeed's flags give as well.
READ_BY_FLAGS: Final = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
    *("fp16.enabled", "bf16.enabled", "data_types.grad_accum_dtype"),
)
# Facts that DeepSpeed's configuration gives where another program starts it.
READ_OF_DEEPSPEED: Final = (
    *("gbs", "mbs", "accumulation", "zero", "shards", "tp", "cp", "cp_kind", "offload", "dp_overlap"),
    *("grad_dtype", "optimizer_kind", DIVIDED),
)


def _named_beside(deepspeed_rules: UnreadRules) -> UnreadRules:
    """Return rules on a DeepSpeed configuration under its names in other files: behind `beside.DEEPSPEED`."""
    return deepspeed_rules.rename(lambda name: (f"{beside.DEEPSPEED}{name}",))


def _with_deepspeed(form: Format) -> Format:
    """Return Accelerate's format with the rows of the configuration of DeepSpeed beside it."""

    def beside_it(row: Row) -> ComputedRow:
        def read(settings: Settings) -> Facts:
            if accelerate.distributed_type(settings) != "DEEPSPEED":
                return {}
            without_effect = {"tp": 1, "accumulation": 0}
            return as_facts(
                {
                    name: value
                    for name, value in row.read(accelerate.native_deepspeed(settings)).items()
                    if name in READ_OF_DEEPSPEED and without_effect.get(name) != value
                }
            )

        own = (name for name, new in accelerate.DEEPSPEED_NAMES.items() if new in row.settings)
        return ComputedRow(
            facts=tuple(name for name in row.facts if name in READ_OF_DEEPSPEED),
            settings=tuple(f"{beside.DEEPSPEED}{name}" for name in (*own, *row.settings)),
            read=read,
            note="with `distributed_type` DEEPSPEED",
        )

    rows = tuple(beside_it(row) for rows in _DEEPSPEED.rows.values() for row in rows)
    rules = form.unread + _named_beside(_DEEPSPEED.unread)
    return replace(form, rows={**form.rows, "DeepSpeed": rows}, unread=rules, takes_files=True)


# Rules of torchtitan that others which shard by FSDP2 and pass stages of PyTorch keep as well.
OF_FSDP2: Final = (SHARDED_KV_HEADS, UNTIED_PIPELINE, EQUAL_SHARDS)
# Readers of programs on the Trainer with command lines of their own.
OWN_TEXTS: Final = {"ms-swift": ms_swift.read_trainer}
_DEEPSPEED: Final = load_format(
    "deepspeed",
    "deepspeed",
    deepspeed.CONVERSIONS,
    required=deepspeed.required_settings,
    assumptions=deepspeed.assumptions,
    figures=deepspeed.figures,
)
_BRIDGE: Final = load_format(
    "megatron-bridge",
    "megatron",
    megatron.CONVERSIONS,
    read=recipes.read_launch,
    write=write_bash.bridge,
    spelled=megatron_bridge.spell,
    assumptions=recipes.assumptions,
    stack=megatron.stack,
    figures=megatron.figures,
    left={},
    named_model=dialects.named_model,
)
# Rules on a DeepSpeed configuration that a script of Megatron-DeepSpeed itself writes.
_WRITTEN: Final = _DEEPSPEED.unread + UnreadRules(harmless=READ_BY_FLAGS)
_SCRIPTS: Final = (
    load_format(
        name,
        "megatron",
        megatron.CONVERSIONS,
        read=megatron_script.read_settings,
        write=write,
        spelled=write_bash.flag,
        unread=_BRIDGE.unread + _named_beside(_WRITTEN),
        arguments=megatron.arguments,
        assumptions=megatron_script.assumptions,
        stack=megatron_script.stack,
        defaults=megatron_script.defaults,
        parser_defaults=megatron_script.all_defaults,
        figures=megatron_script.figures,
    )
    for name, write in (("slurm", write_bash.slurm), ("megatron", write_bash.megatron))
)
_FSDP: Final = load_format(
    "accelerate",
    "fsdp",
    accelerate.CONVERSIONS,
    table="accelerate",
    assumptions=accelerate.assumptions,
    stack=accelerate.stack,
)
_ACCELERATE: Final = _with_deepspeed(replace(_FSDP, write=accelerate.writer(_FSDP.write)))


def _facts_of_accelerate(settings: Settings) -> Facts:
    """Return the facts of Accelerate's settings."""
    errors = ErrorCollector(_ACCELERATE.title)
    return errors.require(_ACCELERATE.facts(settings, errors))


def _on_trainer(program: huggingface.TrainerProgram, own_text: huggingface.OwnText | None = None) -> Format:
    """Return the format of a program on Hugging Face's Trainer, with the settings of Accelerate beside.

    `own_text` reads a text of its own, where that is no plain configuration or command line.
    """
    own_text = own_text or OWN_TEXTS.get(program.name)
    program = replace(program, accelerate=_facts_of_accelerate, own_text=own_text)
    form = load_format(
        program.name,
        "huggingface",
        program.conversions,
        required=program.required_settings,
        read=program.read,
        write=program.write,
        stack=partial(trainer_software.stack, program),
        assumptions=partial(trainer_software.assumptions, program),
        figures=partial(trainer_software.figures, program),
        spelled=program.spell,
        named_model=program.named_model,
        usual_by_fact=partial(trainer_software.usual_by_fact, program),
    )
    beside_it = (
        ComputedRow(facts=(), settings=row.settings, note="of Accelerate")
        for rows in _ACCELERATE.rows.values()
        for row in rows
    )
    rows = {**form.rows, "Accelerate": tuple(beside_it)}
    return replace(
        form,
        rows=rows,
        unread=huggingface.OWN_RULES.get(program.name, UnreadRules()) + form.unread + _ACCELERATE.unread,
        takes_files=True,
        names_model=True,
        own_stack=program.own_stack,
    )


FORMATS: Final[Mapping[str, Format]] = {
    form.name: form
    for form in (
        *_SCRIPTS,
        replace(_BRIDGE, unread=megatron_bridge.unread_rules(_BRIDGE.unread)),
        load_format(
            "torchtitan",
            "torchtitan",
            torchtitan.CONVERSIONS,
            required=torchtitan.required_settings,
            why=torchtitan.WHY,
            stack=torchtitan.stack,
            figures=torchtitan.figures,
            read=torchtitan_config.read_module,
            write=torchtitan_config.write,
            assumptions=torchtitan.assumptions_of_program,
            named_model=torchtitan.named_model,
            releases=("0.3",),
        ),
        load_format(
            "torchtitan-toml",
            "torchtitan",
            torchtitan.CONVERSIONS,
            required=torchtitan.required_settings,
            why=torchtitan.WHY,
            stack=torchtitan.stack,
            assumptions=torchtitan.assumptions,
            figures=torchtitan.figures,
            read=alone(torchtitan.parse_toml),
            own_stack=torchtitan.OF_TOML,
            named_model=torchtitan.named_model,
            lifted=(WHOLE_EXPERTS,),
            releases=("0.2",),
        ),
        _DEEPSPEED,
        load_format("nanotron", "nanotron", nanotron.CONVERSIONS, read=alone(nanotron.read_configuration)),
        _ACCELERATE,
        *map(_on_trainer, huggingface.PROGRAMS),
        load_format(
            "torchtune",
            "fsdp",
            torchtune.CONVERSIONS,
            table="torchtune",
            required=torchtune.required_settings,
            stack=torchtune.stack,
            assumptions=torchtune.assumptions,
            named_model=torchtune.named_model,
            names_model=True,
            own_stack=torchtune.COMPILED,
            dense_only=True,
        ),
        load_format(
            "automodel",
            "torchtitan",
            automodel.CONVERSIONS,
            table="automodel",
            required=automodel.required_settings,
            stack=automodel.stack,
            assumptions=automodel.assumptions,
            read=alone(automodel.read_recipe),
            spelled=automodel.spell,
            named_model=automodel.named_model,
            names_model=True,
            own_stack=automodel.EAGER,
            lifted=tuple(rule for rule in FRAMEWORKS["torchtitan"].rules if rule not in OF_FSDP2),
        ),
    )
}
_MEGATRON: Final = replace(
    FORMATS["megatron"],
    unread=_BRIDGE.unread,
    arguments=lambda _: None,
    assumptions=megatron.assumptions,
    stack=megatron.stack,
    defaults=lambda _: {},
    parser_defaults=lambda _: {},
)
_PACKED: Final = ComputedRow(facts=("documents",), settings=(recipes.PACKED,), read=recipes.read_documents)
# Processes that a launcher starts, of formats whose own files do not say them.
_PROCESSES: Final = (
    ComputedRow(
        facts=("gpus",),
        settings=("nnodes", "nproc_per_node", "nodes", "gpus_per_node", "ntasks_per_node"),
        read=megatron.read_gpus,
        note="of the launcher",
    ),
)


def _python_program(
    base: Format, program: huggingface.TrainerProgram, name: str, title: str, source: str
) -> Format:
    """Return the format of Python programs on the Trainer or on TRL, from that of their command lines."""
    form = _on_trainer(program, trainer_programs.read_program)
    return replace(
        form,
        name=name,
        title=title,
        ending=".py",
        sign="(?!)",  # known by what it imports and builds
        source=source,
        unread=huggingface.OF_PROGRAMS + base.unread,
        assumptions=lambda settings: (*form.assumptions(settings), *trainer_programs.assumptions(settings)),
    )


_RECIPE: Final = replace(
    FORMATS["megatron-bridge"],
    name="bridge-recipe",
    title="Megatron-Bridge (recipe)",
    ending=".py",
    sign=r"(?!)",  # known by its keys
    rows={**FORMATS["megatron-bridge"].rows, "documents": (_PACKED,)},
    read=recipes.read_recipe,
    stack=recipes.stack,
    assumptions=recipes.assumptions,
    named_model=dialects.named_model,
)


def _verl_sft() -> Format:
    """Return the format of verl's supervised fine-tuning, from that of a program on the Trainer."""
    form = dialects.dialect("verl-sft", FORMATS["ms-swift"], verl_sft.read_run)
    return replace(
        form,
        spelled=lambda name: name,
        assumptions=lambda settings: (*form.assumptions(settings), *verl_sft.assumptions(settings)),
    )


def _actor(name: str, base: Format, read: Reader, **own: Any) -> Format:
    """Return the format of reinforcement learning of which the actor's step is read."""
    form = dialects.dialect(name, base, read)

    def assumptions(settings: Settings) -> tuple[str, ...]:
        return (*actors.assumptions(settings), *dialects.dispatcher_notes(name, form.defaults(settings)))

    return replace(form, assumptions=assumptions, **own)


READERS: Final[Mapping[str, Format]] = {  # those that `check` reads
    **FORMATS,
    _RECIPE.name: _RECIPE,
    **{
        program.name: replace(_on_trainer(program), title=title, source=source, sign="(?!)")  # by its command
        for program, title, source in huggingface.READ_ALONE
    },
    **{
        name: _python_program(FORMATS["trl"], program, name, title, source)
        for name, program, title, source in (
            ("trl-program", huggingface.PROGRAMS[0], "TRL (a program)", FORMATS["trl"].source),
            *(
                ("trainer-program", program, f"{title} (a program)", source)
                for program, title, source in huggingface.READ_ALONE
                if program.name == "huggingface-trainer"
            ),
        )
    },
    "torchtitan-command": replace(
        FORMATS["torchtitan"],
        name="torchtitan-command",
        title="torchtitan (a command)",
        ending=".sh",
        sign="(?!)",  # known by its command
        rows={**FORMATS["torchtitan"].rows, "launch": _PROCESSES},
        read=torchtitan_command.read_command,
        unread=UnreadRules(harmless=torchtitan_command.OF_LAUNCHERS) + FORMATS["torchtitan"].unread,
        assumptions=torchtitan_command.assumptions,
    ),
    "primus-torchtitan": dialects.dialect(
        "primus-torchtitan", FORMATS["torchtitan-toml"], dialects.read_primus
    ),
    "llm-foundry": load_format(
        "llm-foundry",
        "fsdp",
        llm_foundry.CONVERSIONS,
        table="llm-foundry",
        read=alone(dialects.filled_in),
        named_model=llm_foundry.named_model,
    ),
    "lightning": load_format(
        "lightning",
        "fsdp",
        lightning.CONVERSIONS,
        table="lightning",
        read=lightning.read_program,
        stack=lightning.stack,
        assumptions=lightning.assumptions,
    ),
    "maxtext": load_format(
        "maxtext",
        "jax",
        maxtext.CONVERSIONS,
        table="maxtext",
        read=maxtext.read_run,
        assumptions=maxtext.assumptions,
        figures=maxtext.figures,
        named_model=maxtext.named_model,
    ),
    **{
        name: dialects.dialect(name, _MEGATRON, reader)
        for name, reader in (
            ("megatron-yaml", dialects.read_megatron_yaml),
            ("primus", dialects.read_primus),
            ("gpt-neox", alone(dialects.yaml_settings)),
            ("nemo", dialects.read_nemo),
            ("nemo2", nemo_programs.read_recipe),
            ("mlperf", dialects.read_variables),
            ("modelzoo", dialects.read_variables),
        )
    },
    "verl-sft": _verl_sft(),
    "ms-swift-megatron": replace(
        dialects.dialect("ms-swift-megatron", _MEGATRON, ms_swift.read_megatron),
        assumptions=ms_swift.assumptions,
        defaults=ms_swift.defaults,
    ),
    **{
        name: _actor(name, base, reader, **own)
        for name, base, reader, own in (
            ("slime", _MEGATRON, actors.read_slime, {"spelled": write_bash.flag}),
            ("verl-megatron", _MEGATRON, actors.read_verl, {"named_model": actors.verl_model}),
            ("verl", FORMATS["trl"], actors.read_verl, {}),
            ("openrlhf", FORMATS["trl"], actors.read_openrlhf, {}),
        )
    },
}
