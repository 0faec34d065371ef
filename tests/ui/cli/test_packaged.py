"""Pages and examples are printed by name; what the help pages show of files runs."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

import traincast as tc
from traincast.planner.designs.design_file import load_question
from traincast.planner.frameworks.spaces import FRAMEWORKS
from traincast.planner.studies.study_file import load_study
from traincast.ui.cli.help_pages import FILES

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
DEMO = re.findall(r"^\t\$\(BIN\)/traincast (plan .*)$", MAKEFILE, re.MULTILINE)


@pytest.mark.parametrize("name", ["studies", "docs/studies.md", "questions/memory", "memory"])
def test_a_page_is_printed_by_its_name(name, run):
    file = ROOT / "docs" / ("studies.md" if "studies" in name else "questions/memory.md")
    code, out, _ = run(f"docs {name}")
    assert code == 0
    written = re.sub(r"<!--.*?-->", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    letters = [Counter(re.sub(r"[\W_]", "", text)) for text in (out, written)]
    assert letters[0] == letters[1]  # cells of tables are broken over lines
    assert json.loads(run(f"docs {name} --json").out)["text"] == file.read_text(encoding="utf-8")
    assert run(f"docs {name} --path").out.strip() == str(file)


def test_pages_are_listed_with_their_titles(run):
    out = " ".join(run("docs").out.split())
    assert "fine_tuning Fine-tune" in out
    assert "catalogue Catalogue of machines" in out  # a generated page, whose first line is a comment


@pytest.mark.parametrize(
    ("command", "said"), [("docs stduies", "studies"), ("example my_clusters", "my_cluster")]
)
def test_an_unknown_name_is_refused_with_one_that_is_close(command, said, run):
    code, _, err = run(command)
    assert code == 2
    assert said in err


def test_an_example_is_printed_or_copied(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = ROOT / "examples" / "strong_scaling.yaml"
    for name in ("strong_scaling", "strong_scaling.yaml", "examples/strong_scaling.yaml"):
        assert run(f"example {name}").out.rstrip() == source.read_text(encoding="utf-8").rstrip()
    assert "my_cluster/pretrain.sh" in run("example my_cluster").out
    assert run("example strong_scaling --output my.yaml").code == 0
    assert Path("my.yaml").read_bytes() == source.read_bytes()
    again = run("example strong_scaling --output my.yaml")
    assert (again.code, "my.yaml" in again.err, "--force" in again.err) == (2, True, True)
    assert run("example --output examples").code == 0
    copied = {
        path.relative_to("examples").as_posix() for path in Path("examples").rglob("*") if path.is_file()
    }
    assert {"design.yaml", "my_cluster/pretrain.sh", "llama-3.1-405b/config.json"} <= copied


@pytest.mark.parametrize(("name", "load"), [("study", load_study), ("design", load_question)])
def test_the_file_on_a_help_page_is_read(name, load, tmp_path, run):
    file = tmp_path / f"{name}.yaml"
    shown = re.search(r"^A file:\n((?:  .*\n)+)", run(f"{name} --help").out, re.MULTILINE)[1]
    file.write_text(re.sub(r"^  ", "", shown, flags=re.MULTILINE), encoding="utf-8")
    assert file.read_text(encoding="utf-8").strip() == FILES[name]
    load(file)


@pytest.mark.parametrize("command", DEMO)
def test_every_plan_of_the_demo_is_one_that_its_framework_runs(command, run):
    """The first is on a calibrated machine; none has what no framework runs, such as SUMMA."""
    assert len(DEMO) == 2
    words = command.split()
    options = dict(zip(words[2::2], words[3::2], strict=True))
    found = tc.search(
        words[1], options["--system"], gpus=int(options["--gpus"]), top=int(options["--top"]),
        gbs=int(options["--global-batch"]) if "--global-batch" in options else None,
        framework=options.get("--framework"), assumptions=options.get("--assumptions"),
    )  # fmt: skip
    assert found.assumptions.errors_known == (command is DEMO[0])
    assert found.framework.name == "megatron"
    for plan, est in [*found.plans, found.recommended]:
        assert plan.strategy in FRAMEWORKS["megatron"].runs
        assert FRAMEWORKS["megatron"].broken(found.model, plan, est.gbs) == []
