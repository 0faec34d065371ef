"""Launches and exports are held to the arguments that a program has."""

import importlib.util
import subprocess
from pathlib import Path

import pytest
from test_round_trip import drawn_estimates

import traincast as tc
from traincast.launch.formats import FORMATS
from traincast.launch.scripts.bash import arguments, read_script
from traincast.launch.settings.arguments import MEGATRON, Argument, Arguments

ROOT = Path(__file__).parents[2]
SCRIPT = """torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096
--num-attention-heads 32 --seq-length 4096
--micro-batch-size 1 --global-batch-size 64 --vocab-size 32000 --bf16 """


def checked(tmp_path, more, **given):
    path = tmp_path / "run.sh"
    path.write_text(SCRIPT.replace("\n", " ") + more, encoding="utf-8")
    return tc.check(path, "dgx-h100", **given)


def test_megatron_lm_has_every_flag_that_is_exported():
    """Of 200 random plans, in both revisions of the table, with a value that it takes."""
    for est in drawn_estimates(FORMATS["megatron"].space, False):
        (words,) = (
            command.words
            for command in read_script(tc.export(est, "megatron").text).commands
            if any(word.endswith("pretrain_gpt.py") for word in command.words)
        )
        start = next(i for i, word in enumerate(words) if word.endswith("pretrain_gpt.py"))
        flags = arguments(words[start + 1 :])
        assert {"num_layers", "micro_batch_size", "train_iters", "tokenizer_type"} <= set(flags)
        assert MEGATRON.find_refused(flags) == []


@pytest.mark.parametrize(
    ("to", "table"), [("torchtitan-toml", "torchtitan_settings"), ("nanotron", "nanotron_settings")]
)
def test_a_program_has_every_setting_that_is_exported(to, table):
    """Of 200 random plans, in each revision, with a value of its kind; neither runs from a package."""
    form, arguments = FORMATS[to], Arguments(table)
    for est in drawn_estimates(form.space, form.dense_only):
        settings = form.read(tc.export(est, to).text)
        listed = {name: value for name, value in settings.items() if value is not None}
        assert len(listed) >= 10
        assert arguments.find_refused(listed) == []


def test_what_is_no_argument_is_named_as_such(tmp_path):
    """`--lr-warm` is taken for one that begins so, as argparse does."""
    lines = checked(tmp_path, "--use-distributed-optimiser --lr-warm 10").reading.assumed
    (line,) = [line for line in lines if "has no" in line]
    revisions = "core_v0.16.1, core_v0.17.1, core_v0.18.2, d98e8a64, core_v0.19.2"
    assert f"Megatron-LM ({revisions}) has no --use-distributed-optimiser:" in line


def test_what_is_no_argument_but_seems_to_matter_is_refused(tmp_path):
    with pytest.raises(tc.InputError, match=r"--recompute-granulatity = full.* has no such argument"):
        checked(tmp_path, "--recompute-granulatity full")


def test_a_value_that_no_revision_takes_is_named(tmp_path):
    """It is no part of the prediction."""
    assumed = checked(tmp_path, "--lr-decay-style step").reading.assumed
    assert any("has no --lr-decay-style step" in line for line in assumed)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--bf16 7", "--bf16 = 7: takes no value"),
        ("--transformer-impl te", "--transformer-impl = te: must be one of local, transformer_engine"),
        ("--fp8-format e5m2", "--fp8-format = e5m2: must be one of e4m3, hybrid"),
    ],
)
def test_a_value_that_the_prediction_needs_is_refused(more, said, tmp_path):
    with pytest.raises(tc.InputError) as caught:
        checked(tmp_path, more)
    assert said in str(caught.value)


def test_megatron_deepspeed_is_not_held_to_the_arguments_of_megatron_lm(tmp_path):
    lines = checked(tmp_path, "--deepspeed --zero-stage 1 --no-pipeline-parallel").reading.assumed
    assert not any("has no" in line for line in lines)


def test_values_are_checked_by_kind():
    kinds = {
        "int": ("8", "8.5"),
        "float": ("1e-4", "fast"),
        "switch": (True, "on"),
        "words": (("a", "b"), True),
    }
    for kind, (right, wrong) in kinds.items():
        assert Argument(kind).against(right) == ""
        assert Argument(kind).against(wrong)
    assert Argument("int").against("$LAYERS") == ""


MODULE = '''
class Options:
    """Argument groups are made of it."""

    depth: Optional[int] = None
    width: int = field(default=0, metadata={"argparse_meta": {"arg_names": ["--breadth"]}})
    gather: bool = True
    kinds: list[Literal["a", "b"]] | None = None
    hidden: Callable | None = None


def add(parser):
    left_out = ["hidden"]
    ArgumentGroupFactory(Options, exclude=left_out).build_group(parser)
    group = parser.add_argument_group("more")
    group.add_argument("--rate", type=float, default=1.0)
    group.add_argument("--fast", "--quick", action="store_true")
    group.add_argument("--mode", choices=["x", "y"], nargs="+")
'''


def test_the_tool_reads_arguments_without_running_them(tmp_path):
    spec = importlib.util.spec_from_file_location("tool", ROOT / "tools" / "arguments.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    file = tmp_path / tool.FILES[0]
    file.parent.mkdir(parents=True)
    file.write_text(MODULE, encoding="utf-8")
    author = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "one"]):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    found = tool.Revision(str(tmp_path), "HEAD").arguments()
    assert {name: tuple(argument) for name, argument in found.items()} == {
        "depth": ("int", ()),
        "breadth": ("int", ()),
        "no_gather": ("switch", ()),
        "disable_gather": ("switch", ()),
        "kinds": ("words", ("a", "b")),
        "rate": ("float", ()),
        "fast": ("switch", ()),
        "quick": ("switch", ()),
        "mode": ("words", ("x", "y")),
    }


def test_a_wrong_value_is_named_once(tmp_path):
    """Both the reader of a setting and the table of the program's arguments are against them."""
    with pytest.raises(tc.InputError) as refused:
        checked(tmp_path, "--tensor-model-parallel-size 2.5 --pipeline-model-parallel-size x")
    named = [problem.partition(" = ")[0] for problem in refused.value.problems]
    assert named == ["--tensor-model-parallel-size", "--pipeline-model-parallel-size"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            "--tensor-model-parallel-size 16",
            "8: must be divisible by tp 16, and the file has no more; give `gpus`",
        ),
        (
            "--num-experts 16 --expert-model-parallel-size 16 --moe-token-dispatcher-type alltoall",
            r"on 8 GPUs \(`gpus` takes another number\)",
        ),
    ],
)
def test_too_few_gpus_of_a_file_can_be_given(tmp_path, more, said):
    """A script for one node may be started on many: `--gpus` says so."""
    with pytest.raises(tc.InputError, match=said):
        checked(tmp_path, more)
    assert checked(tmp_path, more, gpus=32).est.plan.gpus == 32
