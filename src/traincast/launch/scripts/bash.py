"""Reader of bash launch scripts: the arguments of their commands. Nothing is run."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final, NamedTuple

from traincast.catalog import read_document
from traincast.launch.scripts.shell import ALL_PARAMETERS, Command, Script, interpret, substitute
from traincast.launch.scripts.shell_syntax import split_command_lines
from traincast.launch.settings.arguments import MEGATRON
from traincast.launch.settings.beside import find_file
from traincast.launch.settings.given import NOTHING, Given, choose_run
from traincast.launch.settings.settings import Settings, flatten

JSON_HERE_DOCUMENT: Final = re.compile(
    r"<<-?[ \t]*(['\"]?)(?:\w+)\1[^\n]*\n(\{.{0,9999}?\n\})[ \t]*\n", re.DOTALL
)
SLURM_VARIABLES: Final = {  # that a directive sets
    "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
    "gpus_per_node": ("SLURM_GPUS_PER_NODE",),
    "ntasks_per_node": ("SLURM_NTASKS_PER_NODE",),
}
# Settings in which the runs of a script that starts several differ.
OF_RUNS: Final = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
    *("expert_model_parallel_size", "num_layers", "hidden_size", "num_experts", "seq_length"),
    *("global_batch_size", "micro_batch_size", "recompute_granularity"),
    "num_layers_per_virtual_pipeline_stage",
)
ENVIRONMENT: Final = re.compile(  # files that set the environment, not the run
    r"activate|profile|rc$|conda|venv|env|setup|module|credential|secret|nccl|setvars|functions|utils",
    re.IGNORECASE,
)
DIRECTIVE: Final = re.compile(r"\s(?:--([\w-]+)(?:=|\s+)|(-N)\s*)(?!--)(\S+)")  # an option for Slurm
UNSET: Final = re.compile(r"\$\w+|\$\{\w+(?:\[[@*]\])?\}")  # a variable that the script does not set
LEAST_ARGUMENTS: Final = 3  # in which runs can differ
# Endings of files that are no script: their text is not read as commands.
NO_SCRIPTS: Final = (".py", ".yaml", ".yml", ".json", ".toml")
LAUNCHERS: Final = re.compile(  # modules that start another program
    r"(?:torch/distributed/(?:run|launch)|accelerate/commands/(?:launch|accelerate_cli)|deepspeed/launcher/\w+)\.py$"
)
OF_PROCESSES: Final = re.compile(r"(?:.*/)?(?:mpirun|mpiexec|srun)")
OF_NODES: Final = re.compile(r"torchrun|torch[./]distributed|deepspeed\b|accelerate\b")
STARTER: Final = re.compile(r"(?:.*/)?(?:python3?(?:\.\d+)?|torchrun|bash)")  # ends the options of a launcher
MODULE: Final = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")


class Started(NamedTuple):
    """A Python program that a command starts, and the words behind it."""

    program: str  # path of its file; of a module, with slashes for points
    words: list[str]
    launcher: list[str]  # those before it

    @property
    def file(self) -> str:
        """Name of the program's file."""
        return self.program.rpartition("/")[2]


def settings_of(text: str, given: Given = NOTHING) -> Settings:
    """Return the arguments of a script with underscores: the last value of each; True if it has none.

    Where it starts several runs that differ, those of the one that is meant.
    """
    script = read_script(text, given)
    lines = [command.words for command in _commands_of_run(script, given.recipe)]
    if not any(arguments(words).keys() & OF_RUNS for words in lines):
        # The script only defines arguments; another one runs the command.
        lines = [*map(split_command_lines, script.values.values()), *lines]
    settings = directives(text)
    for words in lines:
        settings |= arguments(words)
        settings |= _processes(words)
    if str(settings.get("num_experts")) == "1":  # a dense model
        del settings["num_experts"]
    files = [path for path in script.not_read if script.empty_arrays or not ENVIRONMENT.search(path)]
    if files and not ("num_layers" in settings and _is_complete(lines, script)):
        settings["source"] = tuple(files)
    programs = [word for words in lines for word in words if re.search(r"\bpretrain_\w+\.py$", word)]
    if programs:
        settings["program"] = programs[-1].rpartition("/")[2]
    if "deepspeed_config" in settings:
        written = _written_json(text, script) or _json_beside(settings["deepspeed_config"], given)
        settings |= {f"deepspeed_config.{name}": value for name, value in written.items()}
    return settings


def _processes(words: Sequence[str]) -> Settings:
    """Return the processes that mpirun or srun starts of a Python program itself, one per accelerator."""
    if not words or not OF_PROCESSES.fullmatch(words[0]):
        return Settings()
    if any(OF_NODES.search(word) for word in words):  # one process a node, which starts others
        return Settings()
    counts = [after for word, after in pairwise(words) if word in ("-np", "-n", "--np", "--ntasks")]
    counts += [word.partition("=")[2] for word in words if word.startswith(("--ntasks=", "--np="))]
    return Settings({"world_size": counts[0]}) if counts and counts[0].isdecimal() else Settings()


def _is_complete(lines: Sequence[Sequence[str]], script: Script) -> bool:
    """Return whether command lines hold no variable that could stand for arguments and is not set."""
    if script.empty_arrays:
        return False
    for words in lines:
        for before, word in pairwise(("", *words)):
            takes_value = before.startswith("--") and "=" not in before and not _is_switch(before)
            name = word.strip("${}")
            of_slurm = name.startswith("SLURM_")
            if UNSET.fullmatch(word) and not (takes_value or of_slurm or name in script.values):
                return False
    return True


def _is_switch(flag: str) -> bool:
    """Return whether an argument of Megatron-LM takes no value."""
    name = flag.removeprefix("--").replace("-", "_")
    known = (arguments.get(name) for arguments in MEGATRON.revisions.values())
    return any(argument is not None and argument.kind == "switch" for argument in known)


def _commands_of_run(script: Script, recipe: str | None) -> list[Command]:
    """Return the commands of one run: all of them unless the script starts several runs that differ."""
    runs: dict[str, Command] = {}
    for command in script.commands:
        given = arguments(command.words)
        if command.certain and sum(name in given for name in OF_RUNS) >= LEAST_ARGUMENTS:
            runs[str(len(runs) + 1)] = command
    sizes = {tuple(str(arguments(run.words).get(name)) for name in OF_RUNS) for run in runs.values()}
    if len(sizes) < 2:
        return script.commands
    kept = choose_run(runs, recipe)
    return [command for command in script.commands if command is runs[kept] or command not in runs.values()]


def _written_json(text: str, script: Script) -> Settings:
    """Return settings of JSON that a script writes with here-documents; malformed JSON is skipped."""
    settings = Settings()
    for match in JSON_HERE_DOCUMENT.finditer(text):
        # A variable that is not set stays as text.
        substituted = re.sub(r"(:\s*)(\$\{?\w+\}?)", r'\1"\2"', substitute(match[2], script))
        with suppress(ValueError, RecursionError):
            document = json.loads(substituted)
            settings |= flatten(document) if isinstance(document, dict) else {}
    return settings


def _json_beside(name: object, given: Given) -> Settings:
    """Return settings of the configuration that a script names, if it is in the script's folder or above."""
    file = None if given.folder is None else find_file(str(name), given.folder)
    return Settings() if file is None else flatten(read_document(file))


def commands(text: str, given: Given = NOTHING) -> list[list[str]]:
    """Return the words of every command."""
    return [command.words for command in read_script(text, given).commands]


def command_lines(text: str, path: str, given: Given = NOTHING) -> list[str]:
    """Return the commands of a script, each with single blanks between its words; none of another file."""
    return [] if path.endswith(NO_SCRIPTS) else [" ".join(words) for words in commands(text, given)]


def program_of_script(text: str, path: str, given: Given = NOTHING) -> Started | None:
    """Return the Python program that a script starts with most arguments; None if it starts none.

    Launchers, such as torchrun and deepspeed, are none.
    """
    programs = []
    for words in [] if path.endswith(NO_SCRIPTS) else commands(text, given):
        for place, (before, word) in enumerate(pairwise(("", *words)), 1):
            is_module = before in ("-m", "--module") and MODULE.fullmatch(word) is not None
            file = f"{word.replace('.', '/')}.py" if is_module else word
            if file.endswith(".py") and not file.startswith("-") and not LAUNCHERS.match(file):
                programs.append(Started(file, words[place:], words[: place - 1]))
                break
    return max(programs, key=lambda program: len(arguments(program.words)), default=None)


def undecided_variables(text: str, given: Given) -> dict[str, set[str]]:
    """Return what branches hang on that a script does not tell, with the variables set in them."""
    return read_script(text, given).undecided


def arguments(words: Sequence[str]) -> Settings:
    """Return the arguments of a command line; a script's name ends the values of the argument before it."""
    settings = Settings()
    name = ""
    taking = False
    for word in (re.sub(r"^'([^']*)'$", r"\1", word) for word in words):  # quotes for a shell behind it
        if match := re.match(r"--([A-Za-z][\w.-]*)(?:=(.*))?$", word, re.DOTALL):
            name = match[1].replace("-", "_")
            taking = match[2] is None
            settings[name] = True if match[2] is None else match[2]
        elif re.match(r"-[A-Za-z]", word) or word.endswith((".py", ".sh")) or STARTER.fullmatch(word):
            taking = False
        elif taking and not ALL_PARAMETERS.fullmatch(word):
            value: object = settings[name]
            more = value if isinstance(value, tuple) else (value,)
            if value is True or not UNSET.fullmatch(word):  # which bash drops
                settings[name] = word if value is True else (*more, word)
    return settings


def read_script(text: str, given: Given = NOTHING) -> Script:
    """Read the variables and commands of a script, with what is given beside it."""
    script = Script(without=given.without, folder=given.folder, fixed=frozenset(given.variables))
    for name, value in directives(text).items():
        script.values |= {variable: [str(value)] for variable in SLURM_VARIABLES[name]}
    script.values |= {name: [value] for name, value in given.variables.items()}
    interpret(text, script)
    script.commands = [each for each in script.commands if each.words[0] not in ("echo", "printf")]
    script.values = {name: [value] for name, value in script.passed.items()} | script.values
    return script


def directives(text: str) -> Settings:
    """Return the nodes, and accelerators per node, of Slurm directives."""
    settings = Settings()
    lines = (line for line in text.splitlines() if line.startswith("#SBATCH"))
    options = (match for line in lines for match in DIRECTIVE.finditer(line.partition(" #")[0]))
    for match in options:
        name = (match[1] or "nodes").replace("-", "_")
        value = match[3]
        if gpus := re.fullmatch(r"gpu:(?:\w+:)?(\d+)", value):
            name = "gpus_per_node"
            value = gpus[1]
        if name in SLURM_VARIABLES and value.isdecimal():
            settings[name] = value
    return settings
