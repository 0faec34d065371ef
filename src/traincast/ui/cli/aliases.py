"""Options as other tools and people write them: each is read as the option of traincast that says the same.

What stands here is taken by every command that has the option it is read as. Names are those of Megatron-LM
(Megatron-Core 0.19.2, megatron/training/arguments.py), torchtitan 0.3.0 (torchtitan/config/configs.py),
transformers 5.23 (training_args.py), TRL 1.16, PEFT 0.21.2, Accelerate 1.15, DeepSpeed 0.19.8, torchrun,
Slurm and the tools of clouds. Underscores, capitals and a section before a dot (``--training.seq_len``) do
not matter.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from inspect import Parameter, signature
from itertools import takewhile
from typing import Final, Literal, NamedTuple

from cyclopts import Argument

from traincast.core import InputError, parse_whole, raise_problems
from traincast.ui.cli.app import app

MODEL: Final = "MODEL"  # the positional argument
MODELS: Final = (
    *("--model", "--model-name", "--model-name-or-path", "--model-id", "--model-path", "--base-model"),
    *("--hf-model", "--pretrained-model-name-or-path"),
)
BATCHES: Final = ("--batch", "--batch-size", "--bs")  # of which people may mean either
# Option -> names that take the same value.
SAME_VALUE: Final[Mapping[str, tuple[str, ...]]] = {
    MODEL: MODELS,
    "--system": (
        *("--gpu", "--gpu-type", "--gpu-model", "--gpu-name", "--accelerator", "--accelerator-type"),
        *("--hardware", "--hw", "--machine", "--machine-type", "--instance", "--instance-type", "--cluster"),
        *("--node-type", "--shape", "--vm-size"),
    ),
    "--gpus": (
        *("--num-gpus", "--n-gpus", "--ngpus", "--ngpu", "--gpu-count", "--number-of-gpus", "--total-gpus"),
        *("--world-size", "--num-devices", "--devices", "--num-processes", "--num-accelerators", "--ntasks"),
        *("--chips", "--num-chips", "--tpus"),
    ),
    "--global-batch": (
        *("--global-batch-size", "--train-batch-size", "--global-train-batch-size", "--total-batch-size"),
        *("--effective-batch-size", *BATCHES),
    ),
    "--mbs": (
        *("--micro-batch-size", "--micro-batch", "--microbatch-size", "--micro-bs", "--device-batch-size"),
        *("--per-device-train-batch-size", "--per-device-batch-size", "--per-gpu-train-batch-size"),
        *("--train-micro-batch-size-per-gpu", "--micro-batch-size-per-gpu", "--device-train-microbatch-size"),
    ),
    "--seq": (
        *("--seq-length", "--seq-len", "--seqlen", "--sequence-length", "--sequence-len", "--max-seq-length"),
        *("--max-seq-len", "--max-sequence-length", "--max-length", "--max-len", "--model-max-length"),
        *("--context", "--context-length", "--context-len", "--context-size", "--ctx", "--ctx-len"),
        *("--cutoff-len", "--block-size", "--tokens-per-sequence"),
    ),
    "--tp": (
        *("--tensor-model-parallel-size", "--tensor-parallel-size", "--tensor-parallel-degree"),
        *("--tensor-parallel", "--tensor-parallelism", "--tp-size", "--tp-degree", "--autotp-size"),
    ),
    "--pp": (
        *("--pipeline-model-parallel-size", "--pipeline-parallel-size", "--pipeline-parallel-degree"),
        *("--pipeline-parallel", "--pipeline-parallelism", "--pp-size", "--pp-degree", "--pipeline-stages"),
    ),
    "--cp": (
        *("--context-parallel-size", "--context-parallel-degree", "--context-parallel", "--cp-size"),
        *("--context-parallelism", "--cp-degree"),
    ),
    "--ep": (
        *("--expert-model-parallel-size", "--expert-parallel-size", "--expert-parallel-degree"),
        *("--expert-parallel", "--expert-parallelism", "--ep-size", "--ep-degree"),
    ),
    "--etp": ("--expert-tensor-parallel-size", "--expert-tensor-parallel-degree", "--etp-size"),
    "--dp": (
        *("--data-parallel-size", "--data-parallel-degree", "--data-parallel", "--data-parallelism"),
        *("--dp-size", "--dp-degree"),
    ),
    "--vp": ("--virtual-pipeline-model-parallel-size", "--virtual-pipeline-parallel-size", "--vpp"),
    "--zero": ("--zero-stage", "--zero-optimization-stage", "--sharding-stage"),
    "--precision": ("--mixed-precision", "--training-precision"),
    "--recompute": ("--recompute-granularity", "--activation-recomputation"),
    "--attention": ("--attn-implementation", "--attention-backend", "--attention-implementation"),
    "--optimizer": ("--optim", "--optimizer-type", "--optimizer-name"),
    "--schedule": ("--pipeline-schedule", "--pipeline-parallel-schedule"),
    "--tokens": ("--train-tokens", "--training-tokens", "--num-tokens", "--total-tokens", "--token-budget"),
    "--price": (
        *("--gpu-price", "--gpu-hour-price", "--price-per-gpu-hour", "--cost-per-gpu-hour", "--hourly-price"),
        *("--price-per-hour", "--cost-per-hour"),
    ),
    "--framework": ("--trainer",),
    "--to": ("--format", "--target", "--framework"),
    "--output": ("--out", "--output-file", "--outfile"),
    "--top": ("--top-k", "--num-plans", "--n-plans"),
    "--vocab": ("--vocab-size",),
    "--mfu": ("--measured-mfu", "--model-flops-utilization", "--observed-mfu"),
    "--step-seconds": ("--step-time", "--measured-step-seconds", "--iteration-time", "--seconds-per-step"),
    "--tokens-per-second": ("--throughput", "--tokens-per-sec", "--measured-tokens-per-second"),
}
YES: Final = ("true", "yes", "1")
NO: Final = ("false", "no", "0")
# Name that takes no value, or true -> words in its place; and those after false, where that is plain.
SWITCHES: Final[Mapping[str, tuple[str, str]]] = {
    "--bf16": ("--precision=bf16", ""),
    "--fp16": ("--precision=fp16", ""),
    "--fp8": ("--precision=fp8", ""),
    "--fp32": ("--precision=fp32", ""),
    "--fsdp": ("--zero=3", ""),
    "--fsdp2": ("--zero=3", ""),
    "--use-fsdp": ("--zero=3", ""),
    "--use-megatron-fsdp": ("--zero=3", ""),
    "--use-torch-fsdp2": ("--zero=3", ""),
    "--ddp": ("--zero=0", ""),
    "--use-distributed-optimizer": ("--zero=1", "--zero=0"),
    "--gradient-checkpointing": ("--recompute=full", "--recompute=none"),
    "--activation-checkpointing": ("--recompute=full", "--recompute=none"),
    "--recompute-activations": ("--recompute=selective", "--recompute=none"),
    "--no-gradient-checkpointing": ("--recompute=none", ""),
    "--no-recompute": ("--recompute=none", ""),
    "--sequence-parallel": ("--sp", "--no-sp"),
    "--flash-attn": ("--attention=flash", ""),
    "--use-flash-attn": ("--attention=flash", ""),
    "--use-flash-attention": ("--attention=flash", ""),
    "--no-sequence-parallel": ("--no-sp", ""),
    "--explain": ("--why", ""),
    "--verbose": ("--why", ""),
}
# Option, or name of one -> values as other tools write them, in small letters and with hyphens.
OPTIMIZERS: Final = {  # of torch and bitsandbytes, as transformers 5.23 names them (OptimizerNames)
    "adamw": "adam",
    "adamw-torch": "adam",
    "adamw-torch-fused": "adam",
    "fused-adam": "adam",
    "adamw-8bit": "adam-8bit",
    "adamw-bnb-8bit": "adam-8bit",
    "adam8bit": "adam-8bit",
    "adamw8bit": "adam-8bit",
    "adamw-4bit": "adam-4bit",
    "adamw4bit": "adam-4bit",
}
VALUES: Final[Mapping[str, Mapping[str, str]]] = {
    "--precision": {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "fp4": "nvfp4"},
    "--optimizer": OPTIMIZERS,
    "--optimizer-kind": OPTIMIZERS,
    "--recompute": {"true": "full", "false": "none"},
    "--attention": {  # attn_implementation of transformers 5.23; --attention-backend of Megatron-LM
        "flash-attention": "flash",
        "flash-attention-2": "flash",
        "flash-attention-3": "flash",
        "sdpa": "flash",
        "fused": "flash",
        "eager": "unfused",
    },
    "--to": {
        "megatron-lm": "megatron",
        "megatron-core": "megatron",
        "mcore": "megatron",
        "titan": "torchtitan",
        "hf": "accelerate",
        "huggingface": "accelerate",
        "trainer": "accelerate",
        "llamafactory": "llama-factory",
        "nemo": "megatron-bridge",
    },
    "--schedule": {"interleaved1f1b": "1f1b", "zbvzerobubble": "zb-v", "dualpipev": "dualpipe-v"},
    "--fsdp": {"full-shard": "3", "shard-grad-op": "2", "no-shard": "0"},  # transformers 5.23, FSDPOption
    "--activation-checkpointing": {"full": "full", "selective": "selective", "none": "none"},
}
# Values of an option that other options say -> words in place of both.
WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "--strategy": {  # of Lightning 2.5 (Trainer), and as people say it
        "fsdp": "--zero=3",
        "fsdp2": "--zero=3",
        "ddp": "--zero=0",
        **{f"{kind}{i}": f"--zero={i}" for i in (1, 2, 3) for kind in ("zero", "zero-", "deepspeed-stage-")},
    },
}
NODES: Final = ("--nodes", "--nnodes", "--num-nodes", "--n-nodes", "--num-machines", "--node-count")
OF_NODE: Final = (
    *("--gpus-per-node", "--nproc-per-node", "--nproc", "--ntasks-per-node", "--num-gpus-per-node"),
    *("--n-gpus-per-node", "--gpus-per-machine"),
)
RANKS: Final = ("--lora-rank", "--lora-r", "--peft-lora-rank")
TRAINED: Final[Mapping[str, str]] = {  # name -> what of a model it trains, a part of --train
    **dict.fromkeys(("--lora", "--use-lora", "--use-peft", *RANKS), "lora"),
    **dict.fromkeys(("--qlora", "--load-in-4bit", "--use-qlora"), "qlora"),
    **dict.fromkeys(("--full-finetune", "--full-fine-tuning"), "full"),
    "--sft": "sft",
    "--dpo": "dpo",
}
# No alias, as it may mean more than one thing -> what to write, or who takes it.
TELLING: Final[Mapping[str, str]] = {
    "--gpu": "--gpus N, or --system NAME",
    "--dtype": "--precision bf16, or bf16-pure where weights are held in it",
    "--torch-dtype": "--precision bf16, or bf16-pure where weights are held in it",
    "--bf16": "--precision fp32, or another recipe",
    "--fp16": "--precision bf16, or another recipe",
    "--gradient-accumulation-steps": "--global-batch N, of all micro-batches and replicas",
    "--grad-accum": "--global-batch N, of all micro-batches and replicas",
    "--local-batch-size": "--mbs N, or --global-batch N of all replicas",
    "--sequence-parallel-size": "--cp N --cp-kind ulysses",
    "--ulysses-sequence-parallel-size": "--cp N --cp-kind ulysses",
    "--data-parallel-shard-degree": "--dp N, and --replicas M for M × N ranks",
    "--data-parallel-replicate-degree": "--replicas N, where --dp is the product with the shards",
    "--num-layers-per-virtual-pipeline-stage": "--vp N, chunks of a device",
    "--fp8-format": "--precision fp8, fp8-current, fp8-block or mxfp8",
    "--fp8-recipe": "--precision fp8, fp8-current, fp8-block or mxfp8",
    "--cpu-offload": "--offload optimizer, or optimizer+weights",
    "--fsdp-offload": "--offload optimizer+weights",
    "--lora-target-modules": "--train lora:targets=q+v",
    "--target-modules": "--train lora:targets=q+v",
    "--lora-dropout": "--train lora:dropout",
    "--max-steps": "--tokens N of the whole run",
    "--train-iters": "--tokens N of the whole run",
    "--train-samples": "--tokens N of the whole run",
    "--epochs": "--tokens N of the whole run",
    "--num-train-epochs": "--tokens N of the whole run",
    "--days": "--tokens N; plan says how many days they take",
    "--deadline": "--tokens N; plan says how many days they take",
    "--budget": "--tokens N --cost; plan says what they cost",
    "--max-memory": "a copy of the system's file takes another hbm_bytes (docs machines)",
    "--grpo": "not modelled, as sampling takes most of its time; --train full is its training alone",
    "--ppo": "not modelled, as sampling takes most of its time; --train full is its training alone",
    "--cost": "plan and estimate have it",
    "--mfu": "advise and check have it, as a measured MFU",
    "--measured-mfu": "advise has it, as --mfu",
}
# What changes neither time nor memory of a step, with the value that it takes.
NO_EFFECT: Final = (
    *("--lora-alpha", "--learning-rate", "--lr", "--min-lr", "--lr-scheduler-type", "--lr-decay-style"),
    *("--warmup-steps", "--warmup-ratio", "--lr-warmup-iters", "--lr-warmup-fraction", "--weight-decay"),
    *("--adam-beta1", "--adam-beta2", "--seed", "--clip-grad", "--max-grad-norm"),
)
COMMANDS: Final[Mapping[str, str]] = {  # as people call what a command does -> the command
    **dict.fromkeys(("search", "optimize", "optimise", "recommend", "find", "best", "cost", "price"), "plan"),
    **dict.fromkeys(("predict", "simulate", "forecast", "time"), "estimate"),
    **dict.fromkeys(("mem", "vram"), "memory"),
    **dict.fromkeys(("list", "ls", "models", "systems", "gpus", "hardware"), "catalog"),
}
HEARD: Final = "--batch-size is read as --global-batch, sequences of a step of all GPUs; --mbs is that of one"
MAX_OF_NODE: Final = 16  # accelerators: a larger domain is a rack or a pod


def _by_name() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for option, names in SAME_VALUE.items():
        for name in names:
            found.setdefault(name, []).append(option)
    return found


OPTIONS_OF: Final = _by_name()  # name -> the options that it may be read as, of which a command has one


class Typed(NamedTuple):
    """An option as it was typed."""

    name: str  # as the tables have it
    word: str  # as it was typed
    value: str | None  # after "=", or the next word
    words: int  # that it may take, with a value in the next word


@dataclass
class Spelled:
    """A command line in the options of traincast."""

    words: list[str]
    notes: list[str] = field(default_factory=list)  # on what was read in one of several meanings
    typed: dict[str, str] = field(default_factory=dict)  # option, or MODEL -> as it was typed


def spelled_out(words: Sequence[str]) -> Spelled:
    """Return a command line with every alias replaced by the option it is read as.

    Raises
    ------
    InputError
        If two of them contradict each other.
    """
    command = words[0] if words else ""
    if command == "help":
        return Spelled([*words[1:2], "--help"])
    if command == "version" and len(words) == 1:
        return Spelled(["--version"])
    if command.startswith("-") or command not in app:
        return Spelled(list(words))
    words = _with_options(command, words)
    if not any(map(_is_alias, words)):
        return Spelled(list(words))
    return _Reader(command, list(words)).read_words()


def _with_options(command: str, words: Sequence[str]) -> list[str]:
    """Return the words with a model and a machine that stand after the command as their options.

    A model is one where the command takes nothing else there; a machine, after a model where none is given.
    """
    written = list(words)
    places = list(takewhile(lambda word: not word.startswith("-"), words[1:3]))
    if not places:
        return written
    takes_nothing = not _takes_positions(command)
    if len(places) == 1 and not takes_nothing:
        return written  # without a look at all options, which takes long
    known = _known_options(command)
    given = {name_of(word) for word in words if word.startswith("--")}
    takes_system = "--system" in known and not given & {"--system", *SAME_VALUE["--system"]}
    takes_system &= takes_nothing or MODEL in known
    if len(places) == 2 and takes_system and is_called("system", places[1]):
        written[2] = f"--system={places[1]}"
    if takes_nothing and "--model" in known and not given & set(MODELS):
        written[1] = f"--model={places[0]}"
    return written


def is_called(kind: Literal["model", "system"], word: str) -> bool:
    """Return whether a word is the name of a model or system of the catalogue."""
    from traincast.catalog import known_name

    try:
        known_name(kind, word)
    except InputError:
        return False
    return True


def _is_alias(word: str) -> bool:
    return word.startswith("--") and name_of(word) in (
        OPTIONS_OF.keys()
        | SWITCHES.keys()
        | TRAINED.keys()
        | VALUES.keys()
        | WORDS.keys()
        | {*NODES, *OF_NODE, *NO_EFFECT}
    )


def name_of(word: str) -> str:
    """Return the name of an option as the tables have it: --Training.seq_len=8 is --seq-len."""
    option = word.partition("=")[0][2:].lower().replace("_", "-")
    return f"--{option.rpartition('.')[2]}"


def _takes_positions(command: str) -> bool:
    """Return whether a command has parameters that are given by position."""
    run = app[command].default_command
    assert run is not None
    return any(
        parameter.kind is Parameter.POSITIONAL_ONLY for parameter in signature(run).parameters.values()
    )


@cache
def _arguments(command: str) -> tuple[Argument, ...]:
    """Return what a command takes; to assemble that takes longer than to read a line."""
    arguments: Iterable[Argument] = app[command].assemble_argument_collection()
    return tuple(arguments)


@cache
def _known_options(command: str) -> frozenset[str]:
    """Return the options of a command, and MODEL where it takes a model by position."""
    arguments = _arguments(command)
    positional = {argument.name for argument in arguments if argument.is_positional_only()}
    return frozenset(name for argument in arguments for name in argument.names) | (positional & {MODEL})


class _Reader:
    """Reading of the words of one command."""

    def __init__(self, command: str, words: list[str]):
        self.known = _known_options(command)
        self.command = command
        self.words = words
        self.result = Spelled([])
        self.trained: list[Typed] = []
        self.nodes: dict[str, Typed] = {}

    def read_words(self) -> Spelled:
        """Return the words in the options of the command."""
        out = self.result.words
        place = 0
        while place < len(self.words):
            word = self.words[place]
            typed = self._typed(place) if word.startswith("--") else None
            taken = 0
            if typed is not None and typed.word not in self.known:
                taken = self._take(typed)
            elif typed is not None and typed.value is not None:
                taken = self._take_value(typed, typed.value)
            if not taken:
                out.append(word)
            place += max(taken, 1)
        self._train()
        self._gpus()
        return self.result

    def _typed(self, place: int) -> Typed:
        word = self.words[place]
        option, equals, value = word.partition("=")
        if equals:
            return Typed(name_of(word), option, value, 1)
        after = self.words[place + 1] if place + 1 < len(self.words) else "--"
        return (
            Typed(name_of(word), option, None, 1)
            if after.startswith("--")
            else Typed(name_of(word), option, after, 2)
        )

    def _take(self, typed: Typed) -> int:
        """Write the option that was meant; return how many words it was, 0 if it is no alias here."""
        name = typed.name
        value = typed.value
        if name in TRAINED and "--train" in self.known:
            self.trained.append(typed)
            return typed.words if value is not None and _is_setting(name, value) else 1
        if name in (*NODES, *OF_NODE) and "--gpus" in self.known:
            self.nodes["nodes" if name in NODES else "each"] = typed
            return typed.words
        if name in SWITCHES and SWITCHES[name][0].partition("=")[0] in self.known:
            return self._switch(typed)
        if name in NO_EFFECT and name not in self.known and typed.value is not None:
            self.result.notes.append(f"{typed.word} {typed.value}: changes neither time nor memory")
            return typed.words
        if name in self.known:  # with underscores
            return self._write(typed, name)
        option = next((option for option in OPTIONS_OF.get(name, ()) if option in self.known), None)
        if name == "--gpu" and (value or "").isdecimal():
            others = {name_of(word) for word in self.words} - {name}
            option = "--gpus" if self._is_given("--system", others) else option
            option = option if option == "--gpus" or self._is_given("--gpus", others) else None
        return self._write(typed, option) if option is not None else 0

    def _take_value(self, typed: Typed, value: str) -> int:
        """Write an option of traincast with a value of another tool; return 0 if it is none."""
        usual = value.lower().replace("_", "-")
        if words := WORDS.get(typed.name, {}).get(usual):
            self.result.typed[words.partition("=")[0]] = f"{typed.word} {value}"
        elif usual in VALUES.get(typed.name, {}):
            words = f"{typed.word}={_value(typed.name, value)}"
        else:
            return 0
        self.result.words.append(words)
        return typed.words

    def _is_given(self, option: str, names: set[str]) -> bool:
        return bool({option, *SAME_VALUE[option]} & names)

    def _write(self, typed: Typed, option: str) -> int:
        self.result.typed[option] = typed.word
        value = None if typed.value is None else _value(option, typed.value)
        if option == MODEL:
            if value is not None:
                self.result.words.insert(1, value)
        else:
            self.result.words += [option] if value is None else [f"{option}={value}"]
        if typed.name in BATCHES and HEARD not in self.result.notes:
            self.result.notes.append(HEARD.replace("--batch-size", typed.word, 1))
        return typed.words

    def _switch(self, typed: Typed) -> int:
        """Write what an option without a value says, or with true, false or a value of `VALUES`."""
        value = "" if typed.value is None else typed.value.lower().replace("_", "-")
        taken = value in (*YES, *NO) or value.split(" ")[0] in VALUES.get(typed.name, ())
        on, off = SWITCHES[typed.name]
        option = on.partition("=")[0]
        if value in NO:
            written = off
        elif taken and value not in YES:
            written = f"{option}={VALUES[typed.name][value.split(' ')[0]]}"
        else:
            written = on
        if not written:
            return 0
        self.result.typed[option] = typed.word
        self.result.words.append(written)
        return typed.words if taken else 1

    def _train(self) -> None:
        """Write what is trained: --lora 16 --dpo is --train dpo+lora:r=16."""
        if not self.trained:
            return
        given = [word for word in self.result.words if word.partition("=")[0] == "--train"]
        methods = {TRAINED[typed.name] for typed in self.trained}
        typed_words = " and ".join(dict.fromkeys(typed.word for typed in self.trained))
        adapters = methods - {"dpo", "sft", "full"}
        if {"dpo", "sft"} <= methods:
            raise InputError(self.command, [f"{typed_words}: two objectives; give one of them"])
        if given and methods != {"dpo"}:
            wrong = f"{typed_words} and --train: give one of them, such as --train lora:r=16"
            raise InputError(self.command, [wrong])
        if "full" in methods and adapters:
            raise InputError(self.command, [f"{typed_words}: the whole model or adapters; give one of them"])
        if given:
            place = self.result.words.index(given[0])
            joined = given[0] if "=" in given[0] else f"--train={self.result.words.pop(place + 1)}"
            value = joined.partition("=")[2].removeprefix("dpo+")
            self.result.words[place] = f"--train=dpo+{value}"
            return
        settings = [
            f"r={typed.value}" if str(typed.value).isdecimal() else str(typed.value)
            for typed in self.trained
            if typed.value is not None
            and _is_setting(typed.name, typed.value)
            and typed.value.lower() not in YES[:2]
        ]
        of_all = "full" if "dpo" in methods else "sft"  # all weights, fine-tuned
        method = "lora" if adapters else of_all
        if "qlora" in adapters:
            method = "qlora"
        text = method if not settings else f"{method}:{','.join(dict.fromkeys(settings))}"
        value = text if "dpo" not in methods else f"dpo+{text}"
        self.result.words.append(f"--train={value}")
        self.result.typed["--train"] = typed_words

    def _gpus(self) -> None:
        """Write the GPUs of all nodes."""
        if not self.nodes:
            return
        nodes = self.nodes.get("nodes")
        each = self.nodes.get("each")
        words = " and ".join(typed.word for typed in (nodes, each) if typed is not None)
        problems = [
            f"{typed.word} = {typed.value!r}: must be a whole number of at least 1"
            for typed in (nodes, each)
            if typed is not None and not parse_whole(str(typed.value))
        ]
        raise_problems(self.command, problems)
        count = 1 if nodes is None else int(str(nodes.value))
        size, where = (int(str(each.value)), "") if each is not None else self._node()
        gpus = f"{count * size}"
        if each is None:
            self.result.notes.append(f"{words} {count}: {count * size:,} GPUs, {size} in a node of {where}")
        if given := self._values_of("--gpus"):
            if given != [gpus]:
                wrong = f"{words} and {self.result.typed.get('--gpus', '--gpus')} {given[0]}"
                raise InputError(self.command, [f"{wrong}: contradict each other; give one, or {gpus} GPUs"])
            return
        self.result.words.append(f"--gpus={gpus}")
        self.result.typed["--gpus"] = words

    def _values_of(self, option: str) -> list[str]:
        """Return the values that an option has in the words read."""
        words = self.result.words
        return [
            word.partition("=")[2] or "".join(words[place + 1 : place + 2])
            for place, word in enumerate(words)
            if word.partition("=")[0] == option
        ]

    def _node(self) -> tuple[int, str]:
        """Return the accelerators of a node of the given system, and its name."""
        from traincast.catalog import load_system

        given = self._values_of("--system")
        option = self.nodes["nodes"].word
        if not given:
            raise InputError(
                self.command, [f"{option}: needs --system; or write --gpus N, those of all nodes"]
            )
        system = load_system(given[0])
        sizes = [
            int(tier.size) for tier in system.tiers if tier.size is not None and tier.size <= MAX_OF_NODE
        ]
        if not sizes or system.tiers[0].name == "cable":  # which joins machines of one GPU
            unknown = f"how many GPUs a node of {system.name} has is not known"
            raise InputError(self.command, [f"{option}: {unknown}; write --gpus N, those of all nodes"])
        return max(sizes), system.name


def _value(option: str, value: str) -> str:
    """Return a value as traincast writes it."""
    return VALUES.get(option, {}).get(value.lower().replace("_", "-"), value)


def _is_setting(name: str, value: str) -> bool:
    """Return whether a word after an option of what is trained belongs to it: a rank, settings or true."""
    if value.lower() in YES[:2]:
        return True
    return TRAINED[name] in ("lora", "qlora") and (value.isdecimal() or "=" in value)
