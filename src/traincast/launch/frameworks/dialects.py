"""Configurations that give Megatron-LM's settings under other names; see `tables/dialects.toml`."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from traincast.catalog import load_model, parse_document
from traincast.launch.frameworks import megatron, megatron_model
from traincast.launch.frameworks.checkpoints import NAMED_MODEL, catalogue_name, unknown_model
from traincast.launch.scripts.bash import arguments, directives, read_script
from traincast.launch.settings.format import Format, Reader
from traincast.launch.settings.given import NOTHING, Given, choose_run
from traincast.launch.settings.settings import (
    Settings,
    evaluate_text,
    flatten,
    is_off,
    not_allowed,
    same_value,
)
from traincast.launch.settings.table import ANY, Values, load_document, rows_of
from traincast.launch.settings.unread_settings import UnreadRules, unread_rules

TABLE: Final[Mapping[str, Any]] = load_document("dialects")
PRIMUS_FRAMEWORKS: Final = ("megatron", "torchtitan")  # that are read
INTERPOLATION: Final = re.compile(r"\$\{([^${}]*)\}")
MAX_INTERPOLATIONS: Final = 200  # of a configuration


def dialect(name: str, base: Format, read: Reader) -> Format:
    """Return the format of a dialect, from that of another format, `base`; `read` reads its own settings."""
    table = TABLE[name]
    rules = unread_rules(table.get("unread", {})) + base.unread + UnreadRules(harmless=(NAMED_MODEL,))
    experts: Mapping[str, Any] = table.get("experts", {})  # what it has by default of what moves tokens
    own_names = {megatron_name: own_name for own_name, megatron_name in table.get("names", {}).items()}

    def read_translated(text: str, given: Given = NOTHING) -> Settings:
        return translate(name, read(text, given))

    def defaults(settings: Settings) -> Values:
        if not experts:
            return base.defaults(settings)
        named = str(settings.get(NAMED_MODEL, ""))
        is_of_model = "models" in experts and named not in experts["models"]  # whose own file says it
        return {} if is_of_model else megatron.usual_dispatcher(settings, experts["dispatcher"])

    def stack(settings: Settings) -> str:
        complete = Settings({**settings, **defaults(settings)}) if experts else settings
        if "stack" not in table:
            return base.stack(complete)
        return megatron.stack_of_dispatcher(table["stack"], complete)

    def assumptions(settings: Settings) -> tuple[str, ...]:
        own = () if "stack" in table else base.assumptions(settings)
        return (*own, *dispatcher_notes(name, defaults(settings)))

    further = {"rows": tuple(rows_of(table["rows"], name, megatron.CONVERSIONS))} if "rows" in table else {}
    return replace(
        base,
        name=name,
        title=table["title"],
        ending=table["ending"],
        source=table["source"],
        sign=r"(?!)",  # known by its keys
        rows={**base.rows, **further},
        read=read_translated,
        unread=rules,
        spelled=lambda setting: own_names.get(setting, setting),
        stack=stack,
        defaults=defaults,
        assumptions=assumptions,
        usual_by_fact=lambda _: {},  # its defaults stand in the table
        named_model=base.named_model
        if base.names_model
        else partial(named_model, setting=own_names.get(NAMED_MODEL, "model")),
    )


def dispatcher_notes(name: str, usual: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is assumed of a dialect's default of what moves tokens to experts; nothing without one."""
    if megatron.DISPATCHER not in usual or "experts" not in TABLE[name]:
        return ()
    source = TABLE[name]["experts"]["source"]
    return (f"{megatron.DISPATCHER} {usual[megatron.DISPATCHER]}: not set, the default of {source}",)


def named_model(settings: Settings, setting: str = "model") -> str:
    """Return the model of the catalogue that a `setting` names, without sizes beside it; empty if none.

    Raises
    ------
    InputError
        If the catalogue has no model of this name.
    """
    name = str(settings.get(NAMED_MODEL) or "")
    if not name or settings.any_on("num_layers", "hidden_size"):
        return ""
    if model := catalogue_name(name):
        return model
    raise unknown_model(setting, name)


def translate(name: str, own: Mapping[str, Any]) -> Settings:
    """Return the settings of a dialect as Megatron-LM's; those it has no name for keep theirs."""
    table = TABLE[name]
    names, inverted, values = (table.get(part, {}) for part in ("names", "inverted", "values"))
    settings = Settings(table.get("always", {}))
    own = table.get("models", {}).get(str(own.get("MODEL")), {}) | dict(own)
    for setting, value in own.items():
        known = values.get(setting, {})
        of_any = None if is_off(value) else known.get(ANY)
        match = next((known[word] for word in known if word != ANY and same_value(value, word)), of_any)
        if match is not None:
            settings |= match
        if setting in inverted:
            settings[inverted[setting]] = str(value).lower() == "false"
        elif setting in names and not (is_off(value) and value is not False and names[setting] in settings):
            settings[names[setting]] = value
        elif match is None or ANY in known:
            settings[setting] = value
    adjusted = {"gpt-neox": _adjusted_neox, "mlperf": _adjusted_mlperf, "modelzoo": _adjusted_modelzoo}
    return adjusted[name](settings) if name in adjusted else settings


def _adjusted_neox(settings: Settings) -> Settings:
    """Return gpt-neox's settings with the width of its MLP, one stage for none, and kinds of layers.

    Attention is fused only where `attention_config` says flash or Transformer Engine's stands in its place
    (megatron/model/transformer.py, ea7aefd): the kind "global" is unfused.
    """
    # releases until 2024
    hidden = settings.count("hidden_size")
    llama = settings.pop("llama_mlp", False)
    if width := settings.size("intermediate_size") or (int(8 * hidden / 3) if llama else 4 * hidden):
        gated = settings.any_on("swiglu", "quick_geglu") and not llama
        inner = int(width * 2 / 3) // 2 if gated else width
        multiple = settings.number("mlp_multiple_of")
        settings["ffn_hidden_size"] = -(-inner // multiple) * multiple
    settings.pop("intermediate_size", None)
    if same_value(settings.get("pipeline_model_parallel_size"), 0):
        settings["pipeline_model_parallel_size"] = 1
    kinds = set(re.findall(r"[a-z]\w+", str(settings.get("use_flash_attn") or "global"))) - {"all"}
    settings["use_flash_attn"] = kinds == {"flash"} or settings.any_on("te_mha", "te_fp8_mha")
    if kinds not in ({"flash"}, {"global"}):
        settings["attention_kinds"] = " ".join(sorted(kinds))
    if settings.number("tensor_model_parallel_size") == 1 or not settings.is_on("checkpoint_activations"):
        settings.pop("partition_activations", None)  # without effect
    if same_value(settings.get("num_experts"), 1):
        del settings["num_experts"]
    if settings.get("global_batch_size") is not None:
        settings.pop("gradient_accumulation_steps", None)
    return settings


def _adjusted_mlperf(settings: Settings) -> Settings:
    """Return MLPerf's settings with micro-batches for its batch of a data-parallel rank."""
    if batch := settings.count("batch_of_rank"):
        settings["gradient_accumulation_steps"] = max(batch // settings.number("micro_batch_size"), 1)
    if "SKIP_EVALS" not in settings and not same_value(settings.get("SEQ_PARALLEL"), False):
        settings["sequence_parallel"] = True  # gpt3, conf/megatron_gpt_config_custom.yaml
    return settings


def _adjusted_modelzoo(settings: Settings) -> Settings:
    """Return the ModelZoo's settings with the layers of the end stages, where stages cannot be even."""
    stages = str(settings.get("pipeline_model_parallel_size", 1))
    if stages.isdecimal() and int(stages) and megatron.layers_of(settings) % int(stages):
        for name, own in zip(megatron.OF_END_STAGES, ("PP_FIRST", "PP_LAST"), strict=True):
            if settings.is_on(own):
                settings.setdefault(name, settings[own])
    return settings


# Readers of their texts


def yaml_settings(text: str) -> Settings:
    """Return the settings of a YAML text with dotted names and dashes as underscores."""
    document = flatten(parse_document(text, "yaml", repeated=True))
    return Settings({name.replace("-", "_"): value for name, value in document.items()})


def read_megatron_yaml(text: str, given: Given = NOTHING) -> Settings:
    """Return the arguments of `MODEL_ARGS`, with variables that are given beside them."""
    document = parse_document(text, "yaml", repeated=True)
    table: Any = document.get("MODEL_ARGS", document)
    if table and all(isinstance(value, Mapping) for value in table.values()):  # by model
        table = table[choose_run([str(name) for name in table], given.recipe)]
    settings = Settings()
    for name, value in (table if isinstance(table, Mapping) else {}).items():
        plain = str(name).removeprefix("--").replace("-", "_")
        # Without quotes of the shell, and brackets around words (functional_tests, _run_training.sh).
        word = re.sub(r"""^(['"])(.*)\1$|^\[([^,]*)\]$""", r"\2\3", str(value))
        filled = re.sub(r"\$\{?(\w+)\}?", lambda match: given.variables.get(match[1], match[0]), word)
        settings[plain] = filled if isinstance(value, str) else value
        if isinstance(value, list):  # of which one text may hold several words
            settings[plain] = tuple(word for item in value for word in str(item).split())
        if "_text_sentence" in filled and "decoder_num_layers" not in str(table).replace("-", "_"):
            settings["program"] = megatron_model.BERT  # its data are sentences (tools/preprocess_data.py)
        if isinstance(settings[plain], str) and " " in filled and not filled.startswith(("(", "[", "$")):
            settings[plain] = tuple(filled.split())
    megatron_model.name_hybrid(settings)
    return settings


def read_primus(text: str, given: Given = NOTHING) -> Settings:
    """Return the overrides of Primus's trainer, and the model that it names.

    Of torchtitan's models those with -fp8 convert linear layers (primus/configs/models/torchtitan, fd1eeab).
    """
    document = parse_document(text, "yaml", repeated=True)
    settings = Settings()
    modules = document.get("modules", {})
    trainer: Mapping[str, Any] = next(iter(modules.values()), {}) if isinstance(modules, Mapping) else {}
    if (framework := str(trainer.get("framework", "megatron"))) not in PRIMUS_FRAMEWORKS:
        raise not_allowed("framework", framework, PRIMUS_FRAMEWORKS)
    own = {name: value for name, value in trainer.items() if name != "overrides"}
    own |= flatten(trainer.get("overrides") or {})
    settings |= {name: _fill_in(value, given.variables) for name, value in own.items()}
    if "model" in settings:
        name = str(settings["model"]).removesuffix(".yaml")
        settings[NAMED_MODEL] = name
        if (known := catalogue_name(name)) and load_model(known).latent is None:
            settings.pop("multi_latent_attention", None)
        if framework == "torchtitan" and name.endswith("-fp8"):  # a model file with its converter
            settings |= {
                NAMED_MODEL: name.removesuffix("-fp8"),
                "model.converters": ["quantize.linear.float8"],
            }
    return settings


def _fill_in(value: Any, variables: Mapping[str, str]) -> Any:
    """Return a value with ${NAME:default} filled in."""

    def one(match: re.Match[str]) -> str:
        return variables.get(match[1], match[2] if match[2] is not None else match[0])

    return re.sub(r"\$\{(\w+)(?::([^{}]*))?\}", one, value) if isinstance(value, str) else value


def filled_in(text: str) -> Settings:
    """Return the settings of a YAML text with dotted names, with references to others filled in."""
    document = flatten(parse_document(text, "yaml", repeated=True))
    for _ in range(MAX_INTERPOLATIONS):
        pending = [name for name, value in document.items() if INTERPOLATION.search(str(value))]
        changes = {name: _interpolate(name, document) for name in pending if isinstance(document[name], str)}
        if all(document[name] == value for name, value in changes.items()):
            break
        document |= changes
    return document


def read_nemo(text: str, given: Given = NOTHING) -> Settings:
    """Return the settings of NeMo's trainer and model."""
    document = filled_in(text) | dict(given.variables)
    if missing := [
        name for name, value in document.items() if value == "???" and name.startswith("trainer.")
    ]:
        document = Settings({name: value for name, value in document.items() if name not in missing})
    return Settings({name.removeprefix("model."): value for name, value in document.items()})


def _interpolate(name: str, document: Mapping[str, Any]) -> Any:
    """Return the value of a setting with references to others, sums and products filled in once."""

    def value(match: re.Match[str]) -> str:
        reference = match[1].strip()
        if reference.startswith(("multiply:", "divide_", "sum:")):
            kind, _, rest = reference.partition(":")
            sign = {"multiply": "*", "sum": "+"}.get(kind, "//")
            result = evaluate_text(sign.join(rest.split(",")))
            return str(result) if isinstance(result, int) else match[0]
        levels = len(reference) - len(reference.lstrip("."))
        path = name.split(".")[:-levels] if levels else []
        full = ".".join([*path, reference.lstrip(".")])
        for key in (full, full.removeprefix("training."), f"model.{full}"):
            if key in document:
                return str(document[key])
        return match[0]

    return INTERPOLATION.sub(value, str(document[name]))


def read_variables(text: str, given: Given = NOTHING) -> Settings:
    """Return the variables that a script sets for another one, and the arguments that it gives it.

    They are those of the run that is meant, where it has several.
    """
    script = read_script(text, given)
    programs = tuple(TABLE["modelzoo"]["program"].split())
    starting = [run for run in script.commands if any(word.endswith(programs) for word in run.words)]
    runs = {str(number): run for number, run in enumerate(starting, 1)}
    variables = {name: " ".join(words) for name, words in script.values.items()}
    if not runs:
        read = {"source": tuple(script.not_read)} if script.not_read else {}
        return Settings(directives(text) | variables | read)
    run = runs[choose_run(runs, given.recipe)]
    own = run.variables or variables
    return Settings(directives(text) | dict(own) | dict(given.variables) | arguments(run.words))
