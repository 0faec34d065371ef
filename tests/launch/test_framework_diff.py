"""What a release changes is found in the text of two packages, neither of which is imported."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OLD = """\
import a_package_that_is_nowhere

def add(parser):
    parser.add_argument("--tensor-model-parallel-size", type=int, default=1, help="one")
    parser.add_argument("--seed", type=int, default=1)

class Options:
    micro_batch_size: int = 1
    recompute_granularity: str = field(default=None, metadata={"help": "one"})

def check(args):
    assert args.sequence_parallel, "words"
    assert args.seed
"""
NEW = """\
import a_package_that_is_nowhere

def add(parser):
    parser.add_argument("--tensor-model-parallel-size", type=int, default=1, help="other")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--something-new", action="store_true")

class Options:
    micro_batch_size: int = 2
    recompute_granularity: str = field(default=None, metadata={"help": "other"})

def check(args):
    assert args.sequence_parallel, "other words"
    if args.context_parallel_size > 1 and args.seed:
        raise ValueError("no")
"""


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("framework_diff", ROOT / "tools" / "framework_diff.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def packages(folder):
    for release, text in (("old", OLD), ("new", NEW)):
        file = folder / release / "megatron/training/arguments.py"
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
    return str(folder / "old"), str(folder / "new")


def test_changes_of_what_the_table_reads_are_printed(tool, tmp_path, capsys):
    """By hand, from the two texts: another help text, an unread flag and an assertion on it are no change."""
    assert tool.main(["megatron", *packages(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "- micro_batch_size: int = 1",
        "+ micro_batch_size: int = 2",
        "+ refused if args.context_parallel_size > 1 and args.seed",
        "added names, which no row reads: something_new",
    ]


def test_a_release_without_settings_is_refused(tool, tmp_path, capsys):
    """Files that a framework moved are not taken for files without changes."""
    old, _ = packages(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit) as refused:
        tool.main(["megatron", old, str(tmp_path / "empty")])
    assert refused.value.code == 2
    assert "megatron-core" in capsys.readouterr().err


def test_every_package_belongs_to_a_format_that_is_read(tool):
    assert all(tool.settings_read(form) for form in tool.PACKAGES)
