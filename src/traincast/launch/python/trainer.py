"""Python programs on Hugging Face's Trainer and on TRL: what they build, followed without being run.

Read are the arguments of TrainingArguments, SFTConfig, DPOConfig and their like, LoraConfig, and what
`from_pretrained` is given: literals, through variables, functions of the program, and defaults of its command
line. What is computed is refused by name where it matters; ``--set NAME=VALUE`` gives it.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from traincast.core import InputError, raise_problems
from traincast.launch.frameworks.accelerate import DEEPSPEED_NAMES
from traincast.launch.frameworks.huggingface import CLASSES, LOADING
from traincast.launch.frameworks.unsupported import check_training_kind
from traincast.launch.python.program import CLASS, REST, PythonProgram, Unread, set_attributes
from traincast.launch.python.source import called_name, defaults_of, last_name, main_statements, tree_of
from traincast.launch.scripts.bash import arguments, directives, program_of_script
from traincast.launch.settings.beside import MODEL, REFERENCES, find_file
from traincast.launch.settings.given import NOTHING, Given, choose_run
from traincast.launch.settings.settings import ARITHMETIC, Settings, flatten, value_text
from traincast.launch.settings.table import load_document
from traincast.launch.settings.unread_settings import unread_rules

OBJECTIVES: Final = {  # class of TRL -> what it trains by
    f"{title}{kind}": word for word, title in CLASSES.items() for kind in ("Config", "Trainer")
}
CONFIGURATIONS: Final = (
    *("TrainingArguments", "Seq2SeqTrainingArguments"),
    *(name for name in OBJECTIVES if name.endswith("Config")),
)
POSITIONAL: Final = ("output_dir",)  # of the first argument of a configuration
# Classes of transformers whose `from_pretrained` loads what is trained, such as AutoModelForCausalLM
MODEL_CLASS: Final = re.compile(
    r"\w*(?:ForCausalLM|ForImageTextToText|ForConditionalGeneration)$|^AutoModel$"
)
TOKENIZER_CLASS: Final = re.compile(r"\w*(?:Tokenizer\w*|Processor)$")
# Formats of programs, by what they import or build
SIGNS: Final[Mapping[str, str]] = {
    spec["format"]: spec["pattern"]
    for spec in load_document("unsupported")["programs"].values()
    if isinstance(spec, dict) and spec.get("format") in ("trl-program", "trainer-program")
}
OF_MODELS: Final = {  # arguments of `from_pretrained` -> settings; others change no step
    "dtype": "dtype",
    "torch_dtype": "dtype",
    "attn_implementation": "attn_implementation",
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    **{name: name for name in ("tp_plan", "tp_size", "use_kernels", "kernel_config", "num_hidden_layers")},
    "distributed_config": "distributed_config",
    "device_map": "device_map",
    "experts_implementation": "experts_implementation",
    "use_flash_attention_2": "use_flash_attention_2",
}
OF_QUANTIZATION: Final = {  # of BitsAndBytesConfig
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
    "bnb_4bit_use_double_quant": "use_bnb_nested_quant",
}
OF_ADAPTERS: Final = {  # arguments of LoraConfig -> settings
    "r": "lora_r",
    "target_modules": "lora_target_modules",
    "lora_dropout": "lora_dropout",
    "modules_to_save": "lora_modules_to_save",
    "use_dora": "use_dora",
    "lora_alpha": "lora_alpha",
    "target_parameters": "lora_target_parameters",
    "layers_to_transform": "peft_layers_to_transform",
    "rank_pattern": "lora_rank_pattern",
}
HARMLESS_OF_ADAPTERS: Final = (
    *(
        "task_type",
        "inference_mode",
        "base_model_name_or_path",
        "use_rslora",
        "fan_in_fan_out",
        "alpha_pattern",
    ),
    *("lora_alpha", "revision", "auto_mapping"),
)
PEFT: Final = {"lora_r": 8, "lora_dropout": 0.0}  # PEFT 0.21.2, tuners/lora/config.py, LoraConfig
GAUSSIAN: Final = (True, False, "gaussian", "true", "false")  # of `init_lora_weights`: as many weights
OF_TRAINERS: Final = ("max_seq_length", "max_length", "packing", "beta", "model_init_kwargs")  # old TRL
LENGTHS: Final = ("max_length", "model_max_length", "max_seq_length", "block_size")
IS_TRUE: Final = ("is_bf16_supported", "is_torch_bf16_gpu_available", "is_available", "is_bf16_available")
CAPABILITY: Final = "get_device_capability"
STARTERS: Final = ("Fire", "run", "tyro.cli", "cli")  # call a function with a command line's arguments
NUMBERS: Final = {"int": int, "float": float, "str": str, "bool": bool}
# Facts that each setting of the Trainer gives
FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    setting: tuple(facts.split())
    for section in load_document("huggingface")["rows"].values()
    for facts, row in section.items()
    for setting in row.get("settings", "").split()
}
# Arguments of `accelerate launch` that are read with the program that it starts
OF_LAUNCHERS: Final = (*REFERENCES, *DEEPSPEED_NAMES, "machine_rank", "dynamo_backend")
COMMAND_LINE: Final = "command line"  # subject of the error of a program that is read by its command line
RULES: Final = unread_rules(load_document("huggingface")["unread"])
LINE: Final = "line"  # key of where a configuration is made
DOUBT: Final = "condition"
COMPUTED: Final = "$"  # before the source of a value that is not known
# What is followed of a branch that is not decided
TELLING: Final = re.compile(
    r"\b(?:\w*TrainingArguments|\w+Config|from_pretrained|get_peft_model|prepare_model_for_kbit_training"
    r"|gradient_checkpointing_enable|\w*Trainer)\("
)


def read_program(text: str, given: Given = NOTHING) -> Settings:
    """Return the settings of the training that a program describes, in the names of its libraries.

    Raises
    ------
    InputError
        If it describes several and none is named, or takes its configuration from a command line.
    """
    tree = _Flat().visit(tree_of(text))
    program = _TrainingProgram(tree, given.variables, given.folder)
    program.run(main_statements(tree), program.names)
    if not program.built.configurations:
        program.start_functions(tree)
    if program.built.on_command_line and not program.built.configurations:
        filled = program.built.on_command_line
        objective = OBJECTIVES.get(program.derived.get(filled, filled), "")
        check_training_kind((), {"objective": objective}, COMMAND_LINE)
        problem = f"takes {filled} from the command line: check the command that starts it"
        raise InputError(COMMAND_LINE, [problem])
    if not program.built.configurations:
        raise InputError("Python", ["builds no configuration of a Trainer that can be followed"])
    used = [
        one for one in program.built.trainers if isinstance(one.get("args"), dict) and CLASS in one["args"]
    ]
    every = {f"{one[CLASS]} in line {one[LINE]}": one for one in program.built.configurations}
    by_trainers = {name: one for name, one in every.items() if any(one is each["args"] for each in used)}
    described = by_trainers or every
    configuration = described[choose_run(described, given.recipe)]
    trainer = next((one for one in program.built.trainers if one.get("args") is configuration), {})
    settings = _settings(program, configuration, trainer or (program.built.trainers or [{}])[0])
    stated = {
        name: value
        for name, value in given.variables.items()
        if name in settings or name in FACTS or name in OF_LAUNCHERS
    }
    return _known_settings(Settings({**settings, **stated}), given)


class Beside(NamedTuple):
    """A program that a script starts and that stands beside it."""

    file: Path
    form: str  # its format
    given: Given  # with what the script says of its launcher and its command line


def program_beside(text: str, path: str, given: Given) -> Beside | None:
    """Return the program on the Trainer or on TRL that a script starts; None if none is beside it.

    None too of one that takes all its settings from the command line, which the script has.
    """
    started = program_of_script(text, path, given)
    file = None if started is None or given.folder is None else find_file(started.file, given.folder)
    if started is None or file is None:
        return None
    program = file.read_text(encoding="utf-8", errors="replace")
    form = next((name for name, sign in SIGNS.items() if re.search(sign, program)), "")
    if not form:
        return None
    options = {**directives(text), **arguments(started.launcher), **arguments(started.words)}
    words = {name: "True" if value is True else value_text(value) for name, value in options.items()}
    within = replace(given, variables={**words, **given.variables})
    try:
        read_program(program, within)
    except InputError as error:
        if error.subject == COMMAND_LINE:
            return None
    return Beside(file, form, within)


def _known_settings(settings: Settings, given: Given) -> Settings:
    """Return settings without those that are computed and change no step; refuse others that are."""
    computed = {n: v for n, v in settings.items() if isinstance(v, str) and v.startswith(COMPUTED)}
    sorted_by_effect = RULES.sort_settings(Settings(computed), frozenset(FACTS))
    needless = {*sorted_by_effect.small, *sorted_by_effect.harmless, *sorted_by_effect.unknown} - {MODEL}
    needless |= {name for name in computed if set(FACTS.get(name, ())) & set(given.facts)}
    raise_problems(
        "Python",
        [
            f"{name} = {source.removeprefix(COMPUTED)}: computed by the program; give --set {name}=VALUE"
            for name, source in computed.items()
            if name not in needless and name != MODEL
        ],
    )
    return Settings({name: value for name, value in settings.items() if name not in needless})


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed of a model that the program loads without a dtype."""
    if settings.get("from_pretrained") is None or settings.get("dtype") != "auto":
        return ()
    return (
        "weights are loaded in the precision of the checkpoint, bf16 of most, as from_pretrained has no dtype"
        " (transformers 5; older releases load fp32)",
    )


class _Flat(ast.NodeTransformer):
    """Transformer of a program into one without `try`: what it tries is taken to succeed."""

    def visit_Try(self, node: ast.Try) -> list[ast.stmt]:
        self.generic_visit(node)
        return [*node.body, *node.orelse, *node.finalbody]


@dataclass
class _Built:
    """What a program, with the files that it imports from, has built."""

    given: Mapping[str, Any]  # values of its variables and options
    configurations: list[dict[str, object]] = field(default_factory=list)
    trainers: list[dict[str, Any]] = field(default_factory=list)
    model: dict[str, Any] = field(default_factory=dict)
    adapters: dict[str, object] = field(default_factory=dict)
    recompute: bool | None = None
    lengths: list[object] = field(default_factory=list)  # to which tokenizers cut
    tokenizers: list[dict[str, object]] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)  # functions that are given to others, and were followed
    further: dict[str, object] = field(default_factory=dict)  # settings of what else it does
    on_command_line: str = ""  # the class that a command line fills


class _TrainingProgram(PythonProgram):
    """A program that trains, and what it has built: configurations, trainers, a model and its adapters."""

    doubt = DOUBT
    follows_calls = True

    def __init__(self, tree: ast.Module, variables: Mapping[str, object], folder: Path | None = None):
        super().__init__(tree, {}, folder)
        self.built = _Built({name: _literal(str(value)) for name, value in variables.items()})
        self.names |= {name: value for name, value in self.built.given.items() if name in self.names}
        self.records = {
            node.name: _fields(node) for node in tree.body if isinstance(node, ast.ClassDef)
        }  # of dataclasses
        self.derived = {  # classes of the program, by what configuration they extend
            node.name: last_name(base)
            for node in tree.body
            if isinstance(node, ast.ClassDef)
            for base in node.bases
            if last_name(base) in CONFIGURATIONS
        }

    def home(self, named: ast.expr, depth: int = 0) -> tuple[Self, str] | None:
        """Return the file that defines a name, whose calls build the same training."""
        found_there = super().home(named, depth)
        for other in self.others.values():
            other.built = self.built
        return found_there

    def is_recipe(self, built: object) -> bool:
        """Return whether a value is a configuration of a Trainer."""
        return isinstance(built, dict) and built.get(CLASS) in CONFIGURATIONS

    def follows(self, name: str, words: list[object]) -> bool:
        """Return whether a function of another file is followed: all, as they may build what is trained."""
        return True

    def start_functions(self, tree: ast.Module) -> None:
        """Follow the functions that build a configuration, where nothing that is followed calls them."""
        for name, function in self.functions.items():
            if (
                any(called_name(node) in CONFIGURATIONS for node in ast.walk(function))
                and not self.built.configurations
            ):
                self.call(name)

    def call(
        self,
        name: str,
        words: Iterable[object] = (),
        given: Mapping[str, object] = {},
        depth: int = 0,
    ) -> object:
        """Return what a function returns; an argument without a value or a default is not known."""
        words = list(words)
        function = self.functions[name]
        positional = {argument.arg for argument in function.args.args[: len(words)]}
        missing = {
            argument: self.built.given.get(argument, Unread(argument))
            for argument, default in defaults_of(function.args).items()
            if argument not in positional
            and argument not in given
            and (default is None or argument in self.built.given)
        }
        named = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
        missing |= {
            argument: self.built.given.get(argument, Unread(argument))
            for argument in named
            if argument not in positional
            and argument not in given
            and argument not in defaults_of(function.args)
        }
        return super().call(name, words, {**missing, **given}, depth)

    def run(self, body: list[ast.stmt], names: dict[str, object], depth: int = 0) -> object:
        """Follow statements; also those of functions in functions, which use the names around them."""
        for statement in body:
            if isinstance(statement, ast.FunctionDef) and depth:
                super().run(statement.body, dict(names), depth + 1)
        return super().run(body, names, depth)

    def doubts(self, text: str, statement: ast.stmt, names: Mapping[str, object]) -> None:
        """Note a statement that is not followed and builds or changes what is trained."""
        changes = [
            path for path in set_attributes(statement) if self.is_recipe(names.get(path.split(".")[0]))
        ]
        if changes or TELLING.search(ast.unparse(statement)):
            self.built.further.setdefault(DOUBT, text[:80])
        if any(path.endswith("requires_grad") for path in set_attributes(statement)):
            self.built.further["requires_grad"] = text[:80]

    def condition(self, test: ast.expr, names: Mapping[str, object]) -> bool | None:
        """Return whether a condition holds; a program is taken to be given no file of its arguments."""
        return False if "sys.argv" in ast.unparse(test) else super().condition(test, names)

    def value(self, node: ast.expr, names: Mapping[str, Any], depth: int) -> Any:
        """Return the value of an expression; a source in place of one is not known."""
        match node:
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in ARITHMETIC:
                first, second = (self.value(side, names, depth) for side in (left, right))
                numbers = all(
                    isinstance(side, int) and not isinstance(side, bool) for side in (first, second)
                )
                if numbers and (second or not isinstance(sign, ast.Div | ast.FloorDiv | ast.Mod)):
                    return ARITHMETIC[type(sign)](first, second)
            case ast.Compare() if CAPABILITY in ast.unparse(node):  # of a GPU with bf16
                return True
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id="torch"), named, *_]):
                return self.value(named, names, depth)
            case ast.Call(func=ast.Attribute(value=owner, attr="split"), args=[ast.Constant(value=str(by))]):
                text = self.value(owner, names, depth)
                known = isinstance(text, str) and not isinstance(text, Unread)
                return [part.strip() for part in text.split(by)] if known else Unread("split")
            case ast.Lambda(body=body):
                self.value(body, names, depth)
                return Unread("lambda")
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name))):
                return self.built.given.get(name, Unread(name))
        found = super().value(node, names, depth)
        is_source = isinstance(found, str) and not isinstance(node, ast.Constant | ast.Name | ast.Attribute)
        return Unread(found) if is_source and found == ast.unparse(node)[:200] else found

    def evaluate_call(
        self, node: ast.Call, words: list[object], given: dict[str, object], names: Mapping[str, object]
    ) -> object:
        """Return what a call of a library makes, and note what is trained."""
        name = called_name(node)
        self._follow_passed(node)
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name in CONFIGURATIONS:
            built = {CLASS: name, LINE: node.lineno, **dict(zip(POSITIONAL, words, strict=False)), **given}
            self.built.configurations.append(built)
            return built
        if name in IS_TRUE:
            return True
        if name in NUMBERS and len(words) == 1:
            return _convert_value(name, words[0])
        if name == "dict":
            return dict(given)
        if name in ("getenv", "get") and owner is not None and "environ" in f"{ast.unparse(owner)} {name}env":
            return self.built.given.get(str(words[0]), words[1] if len(words) > 1 else Unread(str(words[0])))
        if name in STARTERS and node.args and ast.unparse(node.args[0]) in self.functions:
            return self.call(ast.unparse(node.args[0]))
        if owner is not None and (made := self._method(name, owner, words, given, names)) is not None:
            return made
        return self._built(name, words, given)

    def _follow_passed(self, node: ast.Call) -> None:
        """Follow the functions of the program that a call is given, once: they may cut what is trained on."""
        words = [*node.args, *(word.value for word in node.keywords)]
        for name in [word.id for word in words if isinstance(word, ast.Name) and word.id in self.functions]:
            if name not in self.built.passed and called_name(node) not in STARTERS:
                self.built.passed.add(name)
                self.call(name)

    def _method(
        self,
        name: str,
        owner: ast.expr,
        words: list[object],
        given: dict[str, object],
        names: Mapping[str, object],
    ) -> object:
        """Return what a method makes: a model, or the options of a command line; None of others."""
        title = ast.unparse(owner).rpartition(".")[2]
        if name in ("from_pretrained", "from_config"):
            return self._load_checkpoint(title, words, given)
        if name in ("gradient_checkpointing_enable", "gradient_checkpointing_disable"):
            self.built.recompute = name.endswith("enable")
            return Unread(name)
        if name == "add_adapter" and words:
            self._adapt(words[0])
            return Unread(name)
        if name == "compile" and title == "torch":
            self.built.further["torch_compile"] = True
            return words[0] if words else Unread(name)
        parser = self.value(owner, names, 0)
        if not isinstance(parser, dict) or CLASS not in parser:
            return None
        if name == "add_argument":
            self._add_option(parser, words, given)
        if name in ("add_argument_group", "add_mutually_exclusive_group"):
            return parser
        if name in ("parse_args", "parse_known_args") and "options" in parser:
            return parser["options"] if name == "parse_args" else [parser["options"], []]
        if name.startswith("parse_") and "records" in parser:
            return [self._record(record) for record in parser["records"]]
        if name == "set_defaults" and "options" in parser:
            parser["options"] |= {key: value for key, value in given.items() if key not in self.built.given}
        if self.is_recipe(parser) and name.startswith("set_"):  # TrainingArguments.set_training and its like
            self.built.further.setdefault(DOUBT, f"{ast.unparse(owner)}.{name}")
        return parser

    def _load_checkpoint(self, title: str, words: list[object], given: dict[str, object]) -> object:
        """Return a model, or what else is loaded, from a checkpoint."""
        first = words[0] if words else given.get("pretrained_model_name_or_path", given.get("config"))
        checkpoint = first.get("name") if isinstance(first, dict) else first
        if MODEL_CLASS.fullmatch(title):
            self.built.model = {CLASS: "model", "name": checkpoint, **given}
            return self.built.model
        if title in ("PeftModel", "AutoPeftModelForCausalLM"):
            self.built.further["adapter"] = f"{title}.from_pretrained"
        loaded = {CLASS: title, "name": checkpoint, **given}
        if TOKENIZER_CLASS.fullmatch(title):
            self.built.tokenizers.append(loaded)
        return loaded

    def _add_option(self, parser: dict[str, Any], words: list[object], given: dict[str, Any]) -> None:
        """Add an option of a command line with its default, or what is given for it."""
        options = parser.setdefault("options", {})
        names = [str(word) for word in words if not isinstance(word, Unread)]
        long = next((name for name in names if name.startswith("--")), names[0] if names else "")
        key = str(given.get("dest", long.lstrip("-").replace("-", "_")))
        action = str(given.get("action", ""))
        usual = {"store_true": False, "store_false": True}.get(action)
        is_needed = given.get("required") is True or not long.startswith("--")
        default = given.get("default", Unread(key) if is_needed else usual)
        options[key] = self.built.given.get(key, default)

    def _record(self, name: str) -> object:
        """Return the fields of a dataclass of the program that a command line fills; or that of a library."""
        if name in self.derived:
            self.built.on_command_line = name
            return Unread(name)
        if name in self.records:
            values = {
                key: self.built.given.get(
                    key, self.value(value, self.names, 0) if value is not None else Unread(key)
                )
                for key, value in self.records[name].items()
            }
            return {CLASS: name, **values}
        if name in CONFIGURATIONS:
            self.built.on_command_line = name
        return Unread(name)

    def _built(self, name: str, words: list[object], given: dict[str, object]) -> object:
        """Return what a function or class of a library makes."""
        if name == "ArgumentParser":
            return {CLASS: name, "options": {}}
        if name in ("HfArgumentParser", "TrlParser"):
            kinds = words[0] if words else []
            kinds = kinds if isinstance(kinds, list) else [kinds]
            return {CLASS: name, "records": [str(kind) for kind in kinds]}
        if name in self.records:
            fields = {
                key: self.value(value, self.names, 0) for key, value in self.records[name].items() if value
            }
            return {CLASS: name, **fields, **dict(zip(self.records[name], words, strict=False)), **given}
        if name == "get_peft_model" and len(words) > 1:
            self._adapt(words[1])
        if name == "prepare_model_for_kbit_training" and given.get("use_gradient_checkpointing", True):
            self.built.recompute = True  # PEFT 0.21.2, utils/other.py
        if name == "compile" and words:
            self.built.further["torch_compile"] = True
        if name in ("get_peft_model", "prepare_model_for_kbit_training", "compile") and words:
            return words[0]
        if name.endswith("Trainer"):
            self.built.trainers.append({CLASS: name, **given})
            if given.get("peft_config") is not None:
                self._adapt(given["peft_config"])
        if "tokenizer" in name.lower() and "max_length" in given:
            self.built.lengths.append(given["max_length"])
        return {CLASS: name, **given} if name.endswith("Config") else Unread(name)

    def _adapt(self, configuration: object) -> None:
        """Note the adapters that are trained."""
        if isinstance(configuration, dict):
            self.built.adapters = configuration
        else:
            self.built.further["peft_config"] = str(configuration)


def _fields(node: ast.ClassDef) -> dict[str, ast.expr | None]:
    """Return the fields of a class by name, with their defaults."""
    fields: dict[str, ast.expr | None] = {}
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            value = statement.value
            if isinstance(value, ast.Call) and called_name(value) == "field":
                value = next((word.value for word in value.keywords if word.arg == "default"), None)
            fields[statement.target.id] = value
    return fields


def _literal(text: str) -> object:
    """Return what a text says in Python: a number or a truth value; else the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _convert_value(kind: str, value: object) -> object:
    """Return a value as a number, a text or a truth value; as it is where that is not known."""
    if isinstance(value, Unread):
        return value
    try:
        return NUMBERS[kind](value)
    except (TypeError, ValueError):
        return Unread(str(value))


def _settings(
    program: _TrainingProgram, configuration: Mapping[str, object], trainer: Mapping[str, object]
) -> Settings:
    """Return the settings of a configuration, of what is trained by it, and of the model."""
    own = {name: value for name, value in configuration.items() if name not in (CLASS, LINE)}
    if REST in own:
        program.built.further[DOUBT] = "**"
        del own[REST]
    settings = Settings(program.built.further)
    settings |= {name: trainer[name] for name in OF_TRAINERS if trainer.get(name) is not None}
    loading = settings.pop("model_init_kwargs", None)
    if isinstance(loading, dict):  # of old TRL, which loads in the dtype of either name
        settings |= {f"{LOADING}{OF_MODELS.get(name, name)}": value for name, value in loading.items()}
    settings |= flatten(own)
    title = str(configuration.get(CLASS))
    if objective := OBJECTIVES.get(str(trainer.get(CLASS)), OBJECTIVES.get(title, "")):
        settings["objective"] = objective
    of_model = _of_model(program, trainer)
    if "from_pretrained" in of_model:  # TRL 1.16, trainer/sft_trainer.py: of a model that is there already
        settings = Settings({name: of for name, of in settings.items() if not name.startswith(LOADING)})
    settings |= of_model
    settings |= _of_adapters(program)
    if program.built.adapters:
        settings.pop("requires_grad", None)
    if program.built.recompute is not None and settings.get("gradient_checkpointing") is None:
        settings["gradient_checkpointing"] = program.built.recompute
    if trainer.get("optimizers") not in (None, [None, None]):
        settings["optimizers"] = "of the program"
    if not title.endswith("Config") or title == "TrainingArguments":
        cut = (one["model_max_length"] for one in program.built.tokenizers if "model_max_length" in one)
        lengths = [
            *cut,
            *program.built.lengths,
            *(program.names[name] for name in LENGTHS if name in program.names),
        ]
        known = {length for length in lengths if isinstance(length, int)}
        if len(known) == 1 and not settings.any_on(*LENGTHS):
            settings["max_length"] = known.pop()
    return Settings({name: _text(name, value) for name, value in settings.items() if value is not None})


def _of_model(program: _TrainingProgram, trainer: Mapping[str, object]) -> Settings:
    """Return the settings of the model that is trained: of its checkpoint, or of one that is named."""
    settings = Settings()
    given = trainer.get("model")
    model = given if isinstance(given, dict) else program.built.model
    if isinstance(given, str) and not isinstance(given, Unread):
        return Settings(model_name_or_path=given)
    if not model or model.get(CLASS) not in ("model",):
        return settings
    settings["model_name_or_path"] = model.get("name")
    for name, setting in OF_MODELS.items():
        if model.get(name) is not None:
            settings[setting] = model[name]
    if settings.get("tp_plan") == "auto":
        settings["tp_plan"] = "of the model"
    quantization = model.get("quantization_config")
    if isinstance(quantization, dict):
        settings |= {
            OF_QUANTIZATION[key]: quantization[key] for key in OF_QUANTIZATION if key in quantization
        }
        if quantization.get(CLASS) != "BitsAndBytesConfig":
            settings["quantization.config"] = str(quantization.get(CLASS))
    elif quantization is not None:
        settings["quantization.config"] = str(quantization)
    if settings.pop("use_flash_attention_2", None):
        settings["attn_implementation"] = "flash_attention_2"
    if isinstance(settings.get("distributed_config"), dict):
        of = {k: v for k, v in settings["distributed_config"].items() if k != CLASS}
        settings["distributed_config"] = ", ".join(f"{name}={value}" for name, value in of.items())
    if not isinstance(settings.get("device_map"), str):
        settings.pop("device_map", None)
    settings.setdefault("dtype", "auto")
    settings["from_pretrained"] = True
    return settings


def _of_adapters(program: _TrainingProgram) -> Settings:
    """Return the settings of the adapters that are trained; none where all weights are."""
    adapters = program.built.adapters
    if not adapters:
        return Settings()
    title = str(adapters.get(CLASS))
    if title != "LoraConfig":
        return Settings(adapter=title)
    settings = Settings({"use_peft": True, **PEFT})
    for name, value in adapters.items():
        if name == "init_lora_weights":
            settings |= {} if value in GAUSSIAN else {"pissa_init": value}
        elif name == "bias":
            settings |= {} if value == "none" else {"lora_bias": value}
        elif name in OF_ADAPTERS:
            settings[OF_ADAPTERS[name]] = value
        elif name != CLASS and name not in HARMLESS_OF_ADAPTERS and value is not None:
            settings[f"lora_{name}"] = value
    return settings


def _text(name: str, value: object) -> object:
    """Return a value as settings have it: of one that is not known its source behind a dollar sign."""
    if isinstance(value, Unread):
        return f"{COMPUTED}{value}"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_text(name, inner)}" for key, inner in value.items() if key != CLASS)
    return [_text(name, one) for one in value] if isinstance(value, list) else value
