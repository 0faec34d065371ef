"""torchtitan's command line: a configuration that comes with it by module and name, and what overrides it.

`python -m torchtitan.train --module M --config C --section.name value` (torchtitan 0.3.0, config/manager.py),
or its run_train.sh, which takes both names and the processes of a machine from variables.
"""

import ast
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, NamedTuple

from traincast.core import InputError
from traincast.launch.frameworks.torchtitan import assumptions_of_program, in_sequences
from traincast.launch.python import torchtitan_config
from traincast.launch.scripts.bash import arguments, directives, read_script
from traincast.launch.settings.beside import find_file
from traincast.launch.settings.given import NOTHING, RECIPE, Given, choose_run
from traincast.launch.settings.settings import Settings
from traincast.launch.settings.table import load_document

PROGRAM: Final = re.compile(r"(?:.*/)?(?:torchtitan\.train|torchtitan/train\.py)")
SCRIPT: Final = re.compile(r"(?:.*/)?run_train\.sh")
USUAL: Final = {"MODULE": "llama3", "CONFIG": "llama3_debugmodel", "NGPU": "8"}  # run_train.sh
ADVICE: Final = "check the file that has it, with --recipe"
CLASS_OF: Final = re.compile(r"([a-z][\w.-]*):([\w-]+)")  # of a section, as tyro names it in a word
CONFIGURATION: Final = "configuration"  # setting: the one that is not in a file
OF_LAUNCHERS: Final = (  # arguments of torchrun
    *("configuration", "node_rank", "master_*", "rdzv_*", "local_*", "role", "tee", "log_dir", "standalone"),
    *("max_restarts", "redirects", "monitor_interval", "virtual_local_rank"),
)
OTHER_CLASS: Final = "subcommand"  # setting: the class of a section, by such a word


class Run(NamedTuple):
    """A run of torchtitan."""

    module: str
    config: str
    overrides: Settings  # with the launcher's settings


def read_command(text: str, given: Given = NOTHING) -> Settings:
    """Return the settings of a run, those of its configuration under the overrides.

    Raises
    ------
    InputError
        If the script starts several runs of which none is named, or the configuration is not known.
    """
    script = read_script(text, given)
    runs: dict[str, Run] = {}
    for command in script.commands:
        words = command.words
        place = next((i for i, word in enumerate(words) if PROGRAM.fullmatch(word)), None)
        by_script = next((i for i, word in enumerate(words) if SCRIPT.fullmatch(word)), None)
        if place is None and by_script is None:
            continue
        start = place if place is not None else by_script
        assert start is not None
        classes = [word for word in words[start + 1 :] if CLASS_OF.fullmatch(word)]
        own = arguments([word for word in words[start + 1 :] if word not in classes])
        launcher = arguments(words[:start])
        values = {name: " ".join(value) for name, value in script.values.items()} | dict(command.variables)
        usual = USUAL if place is None else {}
        names = {name: values.get(name, usual.get(name, "")) for name in USUAL}
        if place is None:
            launcher["nproc_per_node"] = names["NGPU"]
        module = str(own.pop("module", names["MODULE"] if place is None else ""))
        config = str(own.pop("config", names["CONFIG"] if place is None else ""))
        overrides = Settings({**directives(text), **launcher, **_overrides(own)})
        if classes:
            overrides[OTHER_CLASS] = tuple(classes)
        runs[str(len(runs) + 1)] = Run(module, config, overrides)
    if not runs:
        raise InputError("torchtitan", ["starts no run of torchtitan"])
    run = runs["1" if len({str(run) for run in runs.values()}) == 1 else choose_run(runs, given.recipe)]
    settings = Settings({**_configuration(run, given), **run.overrides})
    return in_sequences(settings)


def _configuration(run: Run, given: Given) -> Settings:
    """Return the settings of the configuration that a run names: of a file beside it, or of torchtitan's."""
    path = run.module.replace(".", "/")
    names = (f"torchtitan/models/{path}/config_registry.py", f"{path}/config_registry.py", f"{path}.py")
    files = (None if given.folder is None else find_file(name, given.folder) for name in names)
    if file := next(filter(None, files), None):
        with suppress(OSError):
            return torchtitan_config.read_module(
                file.read_text(encoding="utf-8"), replace(given, recipe=run.config, folder=file.parent)
            )
    table = load_document("torchtitan_configs")
    module = run.module.rpartition(".")[2] if run.module.startswith("torchtitan.models.") else run.module
    known = table.get(module) if isinstance(table.get(module), dict) else None
    if known is None or run.config not in known:
        what = f"--module {run.module} --config {run.config}: no configuration of {table['version']}"
        more = f" ({', '.join(known)})" if known else ""
        raise InputError(RECIPE, [f"{what}{more}; {ADVICE}"])
    return Settings({**known[run.config], CONFIGURATION: f"{run.config} of {table['version']}"})


def _overrides(own: Settings) -> Settings:
    """Return overrides as values: numbers, lists, and switches, which `no-` before a name turns off."""
    settings = Settings()
    for name, value in own.items():
        section, _, last = name.rpartition(".")
        if last.startswith("no_") and value is True:
            settings[f"{section}.{last.removeprefix('no_')}"] = False
        elif isinstance(value, tuple):
            settings[name] = list(value)
        else:
            settings[name] = _value(value)
    return settings


def _value(value: Any) -> Any:
    """Return the value of a word: a number, a list or a truth value, or the word itself."""
    with suppress(ValueError, SyntaxError):
        return ast.literal_eval(str(value))
    return value


def assumptions(settings: Settings) -> tuple[str, ...]:
    """Return what is assumed: a configuration that is not beside the script is that of a release."""
    named = f"what the overrides leave is as in {settings.get(CONFIGURATION)}"
    notes = [named] if CONFIGURATION in settings else []
    return (*notes, *assumptions_of_program(settings))
