"""Options as other tools write them are read as the option that says the same, or the message names it.

The tests go over the whole tables of `traincast.ui.cli.aliases`; whose names these are stands there.
"""

import json
from functools import cache

import pytest

from every_command import DESIGN, STUDY
from traincast.planner.designs.design_file import load_question
from traincast.planner.frameworks.spaces import CALLED, FRAMEWORKS, framework
from traincast.planner.studies.study_file import load_study
from traincast.ui.cli.aliases import (
    MODEL,
    NODES,
    OF_NODE,
    SAME_VALUE,
    SWITCHES,
    TELLING,
    TRAINED,
    VALUES,
    WORDS,
    spelled_out,
)
from traincast.ui.cli.main import app

BASES = {  # of each command a line that can be read: positional arguments, then options
    "plan": {MODEL: "llama-3-8b", "--system": "dgx-h100", "--gpus": "8"},
    "advise": {MODEL: "llama-3-8b", "--system": "dgx-h100"},
    "export": {MODEL: "llama-3-8b", "--system": "dgx-h100"},
    "trace": {MODEL: "llama-3-8b", "--system": "dgx-h100"},
    "check": {"FILE": "run.sh", "--system": "dgx-h100"},
}
GIVEN = {
    MODEL: "llama-3-70b", "--system": "dgx-b200", "--gpus": "64", "--global-batch": "256", "--seq": "16k",
    "--zero": "3", "--precision": "fp8", "--recompute": "full", "--schedule": "zb-v", "--tokens": "15T",
    "--price": "2.5", "--framework": "huggingface", "--to": "torchtitan", "--output": "out.json",
    "--optimizer": "muon", "--attention": "unfused", "--mfu": "0.4", "--step-seconds": "3.5",
    "--tokens-per-second": "1e6",
}  # fmt: skip
VALUE_OF = dict.fromkeys(SAME_VALUE, "4") | GIVEN
PAIRS = [(option, name) for option, names in SAME_VALUE.items() for name in names]


@cache
def known(command):
    return {name for argument in app[command].assemble_argument_collection() for name in argument.names}


def line(command, more=(), without=None):
    """The words of a command line, with more options than its base or without one."""
    given = {name: value for name, value in (BASES[command] | dict(more)).items() if name != without}
    positional = [value for name, value in given.items() if not name.startswith("--")]
    options = (f"{name}={value}" if value else name for name, value in given.items() if name.startswith("--"))
    return [command, *positional, *options]


def read(words):
    """What a command line says, as its command receives it."""
    return parsed(tuple(spelled_out(words).words))


@cache
def parsed(words):
    _, bound, ignored = app.parse_args(words, exit_on_error=False, print_error=False)
    assert not ignored
    return bound.arguments


def command_with(option, name):
    """A command that has an option, and none of the alias's own name."""
    return next(
        command for command in BASES if option in known(command) | {MODEL} and name not in known(command)
    )


@pytest.mark.parametrize(("option", "name"), PAIRS)
def test_an_alias_with_a_value_is_its_option(option, name):
    command, value = command_with(option, name), VALUE_OF[option]
    expected, rest = read(line(command, {option: value})), line(command, without=option)
    for words in (
        [*rest, name, value],
        [*rest, f"{name}={value}"],
        [*rest, name.replace("-", "_").replace("__", "--", 1), value],
        [*rest, f"--training.{name[2:]}", value],
    ):
        assert read(words) == expected


@pytest.mark.parametrize("name", SWITCHES)
def test_an_alias_without_a_value_is_what_it_says(name):
    on, off = SWITCHES[name]
    base = line("plan")
    expected = read([*base, on])
    assert read([*base, name]) == read([*base, name, "true"]) == expected
    assert read(["plan", name, *base[1:]]) == expected  # the model is no value of it
    if off:
        assert read([*base, name, "False"]) == read([*base, off])
    else:
        assert f"{name}=false" in spelled_out([*base, f"{name}=false"]).words


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [(name, value, written) for name, values in VALUES.items() for value, written in values.items()],
)
def test_an_alias_of_a_value_is_that_value(name, value, written):
    option = SWITCHES[name][0].partition("=")[0] if name in SWITCHES else name
    base = line("export" if name == "--to" else "plan")
    expected = read([*base, option, written])
    for alias in (name, *SAME_VALUE.get(name, ())):
        assert read([*base, alias, value]) == expected
        assert read([*base, f"{alias}={value.upper().replace('-', '_')}"]) == expected


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [(option, value, words) for option, values in WORDS.items() for value, words in values.items()],
)
def test_an_alias_that_a_value_is_says_what_other_options_do(option, value, words):
    base = line("plan")
    assert read([*base, option, value]) == read([*base, f"{option}={value.upper()}"]) == read([*base, words])


@pytest.mark.parametrize("name", TRAINED)
def test_an_alias_of_what_is_trained_is_train(name):
    """PEFT's rank is r; TRL's trainers are called after their objective."""
    base, method = line("plan"), TRAINED[name]
    written = {"dpo": "dpo+full", "full": "sft"}.get(method, method)  # all weights, which are fine-tuned
    assert read([*base, name]) == read([*base, "--train", written])
    if method in ("lora", "qlora"):
        assert read([*base, name, "16"]) == read([*base, f"{name}=16"])
        assert read([*base, name, "16"]) == read([*base, "--train", f"{method}:r=16"])
        assert read([*base, name, "r=8,targets=q+v"]) == read([*base, "--train", f"{method}:r=8,targets=q+v"])
        assert read([*base, "--sft", name, "16"]) == read([*base, "--train", f"{method}:r=16"])
        assert read([*base, name, "8", "--dpo"]) == read([*base, "--train", f"dpo+{method}:r=8"])


def test_aliases_of_what_is_trained_go_together():
    base = line("plan")
    lora = read([*base, "--train", "lora:r=16"])
    assert read([*base, "--lora", "--lora-rank", "16"]) == lora
    assert read([*base, "--lora", "--lora_r=16"]) == lora
    assert read([*base, "--train", "lora:r=16", "--dpo"]) == read([*base, "--train", "dpo+lora:r=16"])
    assert read(["plan", "--lora", *base[1:]]) == read([*base, "--train", "lora"])  # the model is no rank


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("each", [None, *OF_NODE])
def test_an_alias_of_nodes_is_the_gpus_of_all(name, each):
    """A DGX H100 has 8 GPUs, a node of Frontier 4 MI250X of two dies each."""
    base = line("plan", without="--gpus")
    if each is None:
        assert read([*base, name, "4"]) == read([*base, "--gpus", "32"])
        frontier = ["plan", "llama-3-8b", "--system", "frontier"]
        assert read([*frontier, name, "4"]) == read([*frontier, "--gpus", "32"])
    else:
        assert read([*base, name, "4", each, "4"]) == read([*base, "--gpus", "16"])
        assert read([*base, each, "4"]) == read([*base, "--gpus", "4"])
        assert read([*base, name, "4", each, "4", "--gpus", "16"]) == read([*base, "--gpus", "16"])


ELSEWHERE = {  # command lines in which an option is said to be no alias; else it follows those of a plan
    "--gpu": "plan llama-3-8b --gpu 8",
    "--bf16": "plan llama-3-8b --system dgx-h100 --gpus 8 --bf16 false",
    "--fp16": "plan llama-3-8b --system dgx-h100 --gpus 8 --fp16 false",
    "--cost": "trace llama-3-8b --system dgx-h100 --cost",
}


@pytest.mark.parametrize("name", TELLING)
def test_what_is_no_alias_is_answered_with_what_to_write(name, run):
    code, _, err = run(ELSEWHERE.get(name, f"plan llama-3-8b --system dgx-h100 --gpus 8 {name} 8"))
    assert code == 2
    assert f"{name}: unknown option; " in err
    assert TELLING[name] in err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            "plan m --system s --nodes 2 --gpus-per-node 8 --gpus 8",
            ("--nodes and --gpus-per-node", "16 GPUs"),
        ),
        ("plan m --system s --nodes 0", ("--nodes = '0'", "at least 1")),
        ("plan m --nodes 2", ("--nodes: needs --system",)),
        ("plan m --system gb200-nvl72 --nodes 2", ("a node of gb200-nvl72", "--gpus N")),
        ("plan m --system s --gpus 8 --lora 16 --train full", ("--lora and --train",)),
        (
            "plan m --system s --gpus 8 --lora 16 --sft --full-finetune",
            ("--lora and --sft and --full-finetune",),
        ),
        ("plan m --system s --gpus 8 --dpo --sft", ("--dpo and --sft: two objectives",)),
        ("plan m --model n --system s --gpus 8", ("'m': not expected here beside --model",)),
        ("plan m --system s --gpu t --gpus 8", ("--gpu (--system): given more than once",)),
        ("plan m --system s --num-gpus x", ("--num-gpus (--gpus) = 'x'", "whole number")),
    ],
)
def test_aliases_that_contradict_each_other_are_refused(command, words, run):
    code, out, err = run(command)
    assert (code, out) == (2, "")
    assert err.startswith("traincast: plan: ")
    assert all(word in err for word in words), err


@pytest.mark.parametrize(
    ("alias", "own"),
    [
        (
            "estimate --model llama-3-8b --machine dgx-h100 --nnodes 1 --tensor-model-parallel-size 2 "
            "--micro_batch_size 2 --global-batch-size 64 --context-length 4k --lora 16 --zero-stage 2",
            "estimate llama-3-8b --system dgx-h100 --gpus 8 --tp 2 --mbs 2 --gbs 64 --seq 4096 "
            "--train lora:r=16 --zero 2",
        ),
        (
            "plan llama-3-8b --instance dgx-h100 --world-size 8 --batch-size 16 --fsdp full_shard "
            "--gradient-checkpointing --top-k 1",
            "plan llama-3-8b --system dgx-h100 --gpus 8 --global-batch 16 --zero 3 --recompute full --top 1",
        ),
    ],
)
def test_an_alias_gives_the_same_answer(alias, own, run):
    """What is read in one of two meanings is said on standard error."""
    answers = [json.loads(run(f"{command} --json").out) for command in (alias, own)]
    for answer in answers:
        answer.pop("elapsed_seconds", None)
    assert answers[0] == answers[1]
    err = run(alias).err
    assert ("--nnodes 1: 8 GPUs, 8 in a node of dgx-h100" in err) == ("--nnodes" in alias)
    assert ("--batch-size is read as --global-batch" in err) == ("--batch-size" in alias)


@pytest.mark.parametrize("name", CALLED)
def test_an_alias_of_a_framework_is_that_framework(name):
    found = FRAMEWORKS[CALLED[name]]
    assert framework(name) is framework(name.upper()) is framework(name.replace("-", "_")) is found
    assert name not in FRAMEWORKS


def test_an_alias_of_a_framework_is_said(run):
    """TRL's trainers are transformers' Trainer."""
    answers = [
        run(f"plan llama-3-8b --system dgx-h100 --gpus 8 --gbs 16 --framework {name} --json --top 1")
        for name in ("trl", "huggingface")
    ]
    plans = [json.loads(answer.out)["plans"] for answer in answers]
    assert plans[0] == plans[1]
    assert "--framework trl: plans and rules of huggingface (transformers" in answers[0].err
    assert answers[1].err == ""
    code, _, err = run("plan llama-3-8b --system dgx-h100 --gpus 8 --framework trlx2")
    assert (code, "known: paper" in err or "did you mean" in err or "known: any" in err) == (2, True)


def test_an_alias_of_a_framework_names_it_in_files(tmp_path):
    """Studies and questions of design name the framework as `plan --framework` does."""
    for name, text, load in (
        ("study.yaml", STUDY.replace("strategies: [1d]", "framework: {}"), load_study),
        ("design.yaml", DESIGN.replace("refine: true", "framework: {}"), load_question),
    ):
        read_as = []
        for framework_name in ("NeMo", "megatron"):
            (tmp_path / name).write_text(text.replace("framework: {}", f"framework: {framework_name}"))
            read_as.append(load(tmp_path / name).assumptions)
        assert read_as[0] == read_as[1]
