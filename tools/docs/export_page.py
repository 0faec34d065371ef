"""Page on launches: prose, and the table of settings of every format."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from traincast.launch.formats import FORMATS, READERS
from traincast.launch.settings.arguments import MEGATRON
from traincast.launch.settings.facts import MEANINGS
from traincast.launch.settings.format import Format
from traincast.launch.settings.table import ANY, ChoiceRow, ComputedRow, Row, ValueRow
from traincast.planner.frameworks.refusals import REFUSALS, Refusal

ORACLES = Path(__file__).parents[2] / "tests/launch/oracle"

INTRO = """# Launches

`traincast export` writes a plan as a launch file of a framework: the model, the parallelism, the batch, precision, optimizer and
recomputation.

    traincast export llama-3-70b --system dgx-h100 --gpus 512 --to megatron --output run.sh
    traincast export mixtral-8x7b --system dgx-h100 --tp 2 --ep 8 --dp 32 --seq 4096 --gbs 512 --to megatron

With `--gpus` it exports the best plan that the framework can run (`--tp 8` and other knobs constrain it), without it the plan given by
the knobs.

```python
import traincast as tc

found = tc.search("llama-3-70b", "dgx-h100", gpus=512, gbs=512, framework="megatron")
launch = tc.export(found, to="megatron")
print(launch.text.splitlines()[0], launch.not_expressed)
```

```text
#!/bin/bash {}
```

`--to slurm` is a batch job that runs Megatron-LM on every node; other frameworks run under Slurm with the files written for them.

## A folder that can be launched

    traincast export examples/tune/model.yaml --system examples/measured_cpu/machine.yaml --gpus 2 --to deepspeed --output out/run/
    bash out/run/launch.sh
    traincast calibrate --system examples/measured_cpu/machine.yaml --log out/run/training.log --output mine.yaml

With a folder as `--output`, `--to deepspeed` and `--to accelerate` write all that a launch needs: the configuration, the model as a
`config.json` of Hugging Face transformers, a training program on random tokens (`train.py`: DeepSpeed's engine, or the Trainer), and
`launch.sh`. It trains ten steps, or as many as `STEPS` says, and keeps what is printed in `training.log`, which `calibrate` and `validate`
read without further words. In Python it is `traincast.launch.folder.export_folder`.

The programs train data-parallel replicas with AdamW and all weights; another plan is refused, and so is a model that no model type has.
On a system of CPUs, such as `traincast measure` writes, processes talk over gloo. There

- DeepSpeed 0.19.8 runs ZeRO-0 to ZeRO-3, in bf16 and fp32. Its own collectives for CPUs are compiled at the first start, which takes
  minutes and a C++ compiler. PyTorch's AdamW (`torch_adam`) saves compiling another.
- Accelerate 1.15.0 runs DDP. It leaves FSDP2 aside without a word (`accelerate/state.py`), stops at FSDP1 ("no available devices found")
  and refuses a ParallelismConfig ("got MULTI_CPU"), so that none is written, and its launcher starts several processes on CPUs only as if they were
  GPUs (`MULTI_GPU` with `use_cpu`) or through mpirun.
- torchtitan 0.3.0 takes a machine without an accelerator for one with CUDA and stops (`torchtitan/trainer.py`, `set_device`); Lightning
  2.6.6 refuses FSDP ("requires a GPU accelerator"). Neither is written as a folder.

`make frameworks` launches such folders, each for three steps, and reads the logs.

## What is not expressed

Every written file is read back. What differs from the model and the plan is *not expressed*: it is listed in the file, on standard
error, and under `not_expressed` with `--json`, so nothing is dropped silently. A model here has no settings that no time depends on, such as
the base of rotary embeddings or how a router scores: the file lists which it leaves at the framework's defaults, as does `left_at_default`.
Settings without effect are not compared: sequence
parallelism on one tensor rank, or a schedule without a pipeline.

A format that describes the model must express its adapters and its kinds of layers, or the file would be of another training: else
`export` refuses with exit code 2. Formats that do not describe the model (DeepSpeed, Accelerate) leave both to the training program.

A model for which torchtitan has no flavour is written under its own name; torchtitan stops until that name is registered. Combinations
of settings that a framework refuses are not written either and are listed in the same places; `check` does not advise them:

{refusals}

A plan that breaks a rule of the framework, given as knobs, is refused with exit code 2 and every rule that it breaks. `check` advises none
of these plans; of a launch that breaks one it says so among what it assumes:

{rules}

## Checking a launch

    traincast check run.sh --system dgx-h100
    traincast check examples/my_cluster/ds_config.json --system dgx-h100 --model llama-3-8b --gpus 64 --recompute full

With what you measured (`--step-seconds 9.1`, `--tokens-per-second`, or `--mfu 28%`) it also says [how far the step is from what is expected, how likely by chance, and what alone would explain it](advise.md#why-is-it-slow).

`traincast check` reads any of the formats below, which it recognises by their content, and launch scripts with Megatron-LM's arguments
as people write them: in variables, arrays, quotes and continued lines. Nothing is executed. What the file does not state is given on
the command line (the model, the number of GPUs, the batch, the lengths of documents, any knob), or assumed, and the answer lists what was
assumed.

It reads these as well, which are not written: {read_only}. Of reinforcement learning (verl, OpenRLHF, slime)
`--actor` reads the actor's training step: one mini-batch of prompts and answers, each as long as it may get unless `--lengths` says otherwise.

A launch gets the defaults of its own program: a script that starts a program on Hugging Face's Trainer alone (Alpaca, FastChat, `run_clm.py`)
those of the Trainer, with the length of that program's own argument, one of TRL those of TRL. An option replaces the whole default.

Python programs on TRL and on the Trainer are followed without being run: what `SFTConfig`, `TrainingArguments`, `LoraConfig` and
`from_pretrained` are given, through variables, functions and the defaults of a command line. A value that is computed is refused by name,
and `--set NAME=VALUE` gives it. A script that starts such a program beside it is read together with it. A launch of Megatron-Bridge takes
its recipe from the repository that it stands in, from the installed package, or from a table of release 0.6.0; `-m torchtitan.train
--module … --config …` takes its configuration from a registry beside it, or from a table of what torchtitan 0.3.0 returns.

What holds the readings: launches with random settings, of the names that the tables below read, are given to the framework's own classes and
to the reader, and what both make of them (degrees, batch, length, precision, sharding, recomputation, offloading, adapters) is compared. A few dozen of
each format are kept with the tests; `make frameworks` compares a thousand.

{oracles}

Besides, torchtitan's configurations are compared with what the installed package returns, and Megatron-Bridge's benchmarks with what the
recipes set when they are run. There is no oracle for {no_oracle}: their names and defaults were read in the packages' sources.

Files of other programs, and launches of what is not counted (multimodal and diffusion models, retrieval, other reinforcement learning,
evaluation, conversion), are refused by name with exit code 2. So is a value that the framework does not know.

Every setting of a file is one of these:

- *read*: in the tables below;
- *not read, though it matters*: it changes time or memory in a way that is not predicted. `check` stops with exit code 2 and lists each
  with its value and the reason. The same holds for an unknown setting whose name refers to the model, a length, degrees, batch,
  precision, optimizer, memory or overlap. With `--accept-unread` the launch is predicted without them, and the first lines list them;
- *not understood*: an unknown setting with another name. It is listed;
- *of small effect*: fusions of single kernels, bucket sizes and the like. It is listed;
- *not part of the prediction*: logs, data, checkpoints, learning rates, seeds, or a value for which the prediction holds.

`--json` has them under `read`, `unread`, `not_understood`, `small` and `ignored`.

What a script of Megatron-LM leaves out is read as its default in megatron-core 0.19.2, written out; the defaults that matter stand under
"assumed". A script with arguments that Megatron-LM had up to September 2023 is predicted with the software of its time.

`check` predicts the launch with the software stack of its framework, searches the plans that the framework can run on the same GPUs,
batch and precision, and estimates every single change (a degree doubled or halved against data parallelism, another micro-batch, number of
chunks, ZeRO stage, recomputation or schedule), the best pairs of changes, and the best pair with a third. It reports changes that fit and
that the framework accepts, in the framework's own settings. If the launch does not fit in memory, the exit code is 1 and the answer has
the nearest change that makes it fit.

```python
found = tc.check("examples/my_cluster/pretrain.sh", "dgx-h100")
print(found.est.plan, found.est.fits)
for change in found.spelled(found.together.settings):
    print(change.setting, change.old, "->", change.new)
```

```text
1d tp=8 pp=2 dp=2 fast_tp=8 dp_overlap=False recompute=full layout=16,16 True
--tensor-model-parallel-size 8 -> 4
--recompute-granularity full -> None
--recompute-method uniform -> None
--recompute-num-layers 1 -> None
--tp-comm-overlap None -> on
```

## The formats

Names of settings come from the sources named below. Where a program could be installed, it read the files itself: the launcher of
Accelerate 1.15.0 reads the files written for it, the classes of torchtitan 0.3.0 build the Python configuration, model included,
Megatron-LM's parser, as megatron-core 0.19.2 ships it, takes and validates the scripts, and Megatron-Bridge's names of the model, of
sharding and of the optimizer are fields of its classes. Arguments of other releases count as well: a table of them, with the kinds and
choices of their values, is read from the source by `tools/arguments.py`, of the revisions {revisions}. Every exported flag is in it, and `check` names what is not; the settings of
nanotron and of torchtitan's TOML are held to tables of the same kind. What was launched is a folder ([above](#a-folder-that-can-be-launched)).

Facts are knobs and choices of a plan ([nomenclature](nomenclature.md)) and fields of a model ([models](models.md)). Data,
tokenizer, learning rate and length of the run are the user's: what is written for them lets the file run, and no more.
"""


def page() -> str:
    """Return the page."""
    first_formats: dict[str, Format] = {}  # of a framework; its others have the same settings
    for format_ in FORMATS.values():
        first_formats.setdefault(format_.framework, format_)
    formats = (_format(format_, first_formats[format_.framework]) for format_ in FORMATS.values())
    intro = INTRO.replace("{refusals}", _refusals()).replace("{rules}", _rules())
    titles = (form.title for name, form in READERS.items() if name not in FORMATS)
    intro = intro.replace("{read_only}", ", ".join(titles))
    intro = intro.replace("{oracles}", _oracles()).replace("{no_oracle}", _without_oracle())
    intro = intro.replace("{revisions}", " and ".join(MEGATRON.revisions))
    return intro + "\n" + "\n".join(formats)


def _oracles() -> str:
    """Return the table of formats whose readings are held to the framework's own classes."""
    readings = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in ORACLES.glob("*.json")}
    rows = (
        f"| {form.title} | {readings[name]['release']} | {readings[name]['classes']} | {len(readings[name]['cases'])} |"
        for name, form in READERS.items()
        if name in readings
    )
    return "\n".join(("| format | release | read by | files kept |", "| --- | --- | --- | --- |", *rows))


def _without_oracle() -> str:
    """Return the formats whose readings nothing but tables and tests holds."""
    known = {path.stem for path in ORACLES.glob("*.json")}
    titles = [form.title for name, form in READERS.items() if name not in known]
    return f"{', '.join(titles[:-1])} and {titles[-1]}"


def _refusals() -> str:
    """Return the table of combinations of settings that frameworks refuse."""
    rows = (
        f"| {refusal.framework} | `{refusal.choice}` | {', '.join(sorted(map(_word, refusal.values)))} |"
        f" {_beside(refusal)} |"
        f" {refusal.why} ({refusal.source}) |"
        for refusal in REFUSALS
    )
    return "\n".join(
        ("| framework | choice | refused | beside | why |", "| --- | --- | --- | --- | --- |", *rows)
    )


def _beside(refusal: Refusal) -> str:
    """Return with what a value is refused: other choices, facts of the software, releases."""
    conditions = {**refusal.conditions, **refusal.software}
    parts = [f"`{name}` {_word(value)}" for name, value in conditions.items()]
    if refusal.since:
        parts.append(f"release {refusal.since} and later")
    if refusal.until:
        parts.append(f"release {refusal.until} and before")
    return ", ".join(parts) or "anything"


def _rules() -> str:
    """Return the table of rules of frameworks that have a format."""
    frameworks = dict.fromkeys(form.space for form in FORMATS.values())
    rows = (
        f"| {space.name} | {rule.broken} | {space.version} |" for space in frameworks for rule in space.kept
    )
    return "\n".join(("| framework | rule | version |", "| --- | --- | --- |", *dict.fromkeys(rows)))


def _format(format_: Format, first: Format) -> str:
    """Return the section of a format: its table, what it cannot express, and what is not read."""
    rows = (_cells(format_, row) for section in format_.rows.values() for row in section if row.facts)
    lines = [
        "| fact | setting |",
        "| --- | --- |",
        *(f"| {facts} | {settings} |" for facts, settings in rows),
    ]
    without = [f"| {_facts((name,))} | {why} |" for name, why in format_.why.items()]
    not_expressed = ["", "Not, or not always, expressed:", "", "| fact | why |", "| --- | --- |", *without]
    unread = (
        ["", "Not read, though it matters:", "", *_unread(format_)]
        if format_ is first
        else ["", f"Not read: as of {first.title}."]
    )
    return (
        "\n".join(
            (
                f"## {format_.title} (`--to {format_.name}`)",
                "",
                f"Names: {format_.source}.",
                "",
                *lines,
                *not_expressed,
                *unread,
            )
        )
        + "\n"
    )


def _unread(form: Format) -> Iterable[str]:
    """Yield the table of settings that matter and are not read."""
    yield from ("| setting | when | what it does |", "| --- | --- | --- |")
    for row in (row for row in form.unread.matter if not row.settings[0].startswith("deepspeed_config.")):
        conditions = [
            f"is {' or '.join(map(str, row.at))}" if row.at else "",
            f"is not {' or '.join(map(str, row.neutral))}" if row.neutral else "",
            f"`{form.spelled(row.needs)}` is set" if row.needs else "",
            f"{_names(form, row.degrees)}: one is above 1" if row.degrees else "",
            f"{_names(form, row.unless)} not set" if row.unless else "",
            f"`{form.spelled(row.unlike)}` has another value" if row.unlike else "",
        ]
        yield f"| {_names(form, row.settings)} | {', '.join(filter(None, conditions))} | {row.why} |"


def _cells(form: Format, row: Row) -> tuple[str, str]:
    """Return the cells of a row: facts, and settings."""
    spelled = form.spelled
    match row:
        case ValueRow():
            setting, *older = row.settings
            older_names = f" (also {_names(form, older)})" if older else ""
            text = f"`{spelled(setting)}`{older_names}" + (
                "" if row.default is None else f"; default {row.default}"
            )
        case ChoiceRow():
            written, understood = (
                "; ".join(f"{_word(value)}: {_settings(form, settings)}" for value, settings in cases)
                for cases in (row.written, row.understood)
            )
            also = f"read as well: {understood}" if written else f"read: {understood}"
            text = "; ".join(filter(None, (written, understood and also)))
        case ComputedRow():
            text = ", ".join(filter(None, (_names(form, row.settings), row.note)))
    return _facts(row.facts), text + (f" ({row.source})" if row.source else "")


def _settings(form: Format, settings: Mapping[str, object]) -> str:
    """Return the settings that express a word."""
    texts = [
        f"`{form.spelled(name)}`"
        if value is True
        else f"`{form.spelled(name)}` {'…' if value == ANY else value}"
        for name, value in settings.items()
    ]
    return " ".join(texts) or "nothing"


def _word(value: object) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _names(form: Format, names: Iterable[str]) -> str:
    return ", ".join(f"`{form.spelled(name)}`" for name in names)


def _facts(names: Iterable[str]) -> str:
    """Return facts, with the meaning of those that are neither knobs nor fields of a model."""
    return ", ".join(f"`{name}`" + (f" ({MEANINGS[name]})" if name in MEANINGS else "") for name in names)
