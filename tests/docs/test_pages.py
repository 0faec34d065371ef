"""README and docs do what they say: examples run, captures are what is printed, generated pages are what the
code prints."""

import contextlib
import doctest
import importlib.util
import io
import re
import shlex
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from every_command import STUDY
from traincast.ui.cli import output
from traincast.ui.cli.main import main
from traincast.ui.cli.output import message_columns  # the fixture of all tests replaces it in its module

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "docs/index.md",
    "docs/tutorial.md",
    "docs/models.md",
    "docs/huggingface.md",
    "docs/machines.md",
    "docs/collectives.md",
    "docs/studies.md",
    "docs/metrics.md",
    "docs/advise.md",
    "docs/trace.md",
    "docs/export.md",
    "docs/validation.md",
    "docs/calibration.md",
    "docs/kernels.md",
    "docs/uncertainty.md",
    "docs/limits.md",
    "docs/scaling.md",
    "docs/insights.md",
    "docs/degree_pairs.md",
    "docs/questions/varying.md",
]
PYTHON = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
CAPTURE = re.compile(r"<!-- capture: (.*?) -->\n```text\n(.*?)```", re.DOTALL)
EXCERPT = re.compile(
    r"^`traincast ([^`]+)` prints among other lines\n\n```text\n(.*?)```", re.DOTALL | re.MULTILINE
)
DOCTESTS = [
    "traincast",
    "traincast.core.plan",
    "traincast.core.knobs",
    "traincast.planner.frameworks.refusals",
    "traincast.step.model_flops",
    "traincast.step.estimates",
    "traincast.step.run_metrics",
    "traincast.analysis.per_parameter",
    "traincast.planner.answers.advice",
    "traincast.analysis.step_trace",
    "traincast.launch.settings.canonical",
    "traincast.launch.frameworks.layer_patterns",
    "traincast.step.placement",
    "traincast.planner.studies.executors",
]


NOT_RUN = {  # what a command line holds → who runs it
    "traincast serve": "goes on until interrupted: tests/ui/explorer",
    "traincast measure": "takes minutes of PyTorch: tests/accuracy/machine",
    "traincast design": "takes a minute: tests/ui/cli runs a smaller one",
    "this-machine.yaml": "is written by measure",
    "--dask": "needs a scheduler: tests/planner/studies",
    "$SLURM": "is a job of Slurm: tests/planner/studies",
    "$SCRATCH": "is a job of Slurm: tests/planner/studies",
    "bash run.sh": "is a job of the reader",
    "out/run/training.log": "is written by a launch: tests/frameworks",
    "…": "is a form, not a command",
}
# whose commands tests/ui/cli runs, and test_generated_pages_are_up_to_date those of the recipes
GENERATED = {"commands.md", "json.md", "recipes.md"}
SLOW = {"gallery.md", "reports.md", "validation.md", "tuning.md", "interleaving.md", "memory.md", "summa.md"}


def commands(page):
    """Command lines of traincast on a page, in their order: in fences, or indented."""
    text = re.sub(r"\\\n *", "", page.read_text(encoding="utf-8"))
    lines = [
        line.strip().removeprefix("$ ")
        for block in re.split(r"(```.*?```)", text, flags=re.DOTALL)
        for line in block.splitlines()
        if block.startswith("```") or line.startswith("    ")
    ]
    run = [line for line in lines if line.startswith("traincast ")]
    return [line for line in run if not any(part in line for part in NOT_RUN)]


def pages_with_commands():
    """Pages by what they take: those of guides always, the slow ones every night."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if page.name not in GENERATED and commands(page):
            marks = [pytest.mark.nightly] if page.name in SLOW else []
            if find_spec("torch") is None and any(
                line.startswith("traincast tune") for line in commands(page)
            ):
                marks.append(pytest.mark.skip("its launches train with PyTorch, which is not installed"))
            yield pytest.param(page, marks=marks, id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("page", [*pages_with_commands()])
def test_commands_of_a_page_run(page, tmp_path, monkeypatch):
    """One after the other, as a reader of the page runs them, with the examples at hand."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "my-study.yaml").write_text(STUDY)
    (tmp_path / "my_runs.csv").symlink_to(ROOT / "tests/data/my_runs.csv")
    monkeypatch.chdir(tmp_path)
    for command in commands(page):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main(shlex.split(command, comments=True)[1:])
            except SystemExit as stop:
                pytest.fail(f"{command}: {stop.code}: {err.getvalue()}")
        assert out.getvalue() or "--output" in command, command
        assert "not expressed" not in err.getvalue()


@pytest.mark.parametrize("page", PAGES)
def test_examples_run_and_print_what_the_page_shows(page):
    names: dict = {}
    examples = PYTHON.findall((ROOT / page).read_text(encoding="utf-8"))
    assert examples
    for code, shown in examples:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        assert printed.getvalue() == shown


def test_captures_are_what_the_command_prints(capsys):
    captures = CAPTURE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert captures
    for command, shown in captures:
        main(command.split())
        assert without_time(capsys.readouterr().out).startswith(without_time(shown))


def test_excerpts_are_lines_that_the_command_prints(capsys):
    excerpts = [
        found for page in ROOT.glob("docs/*.md") for found in EXCERPT.findall(page.read_text("utf-8"))
    ]
    assert excerpts
    for command, shown in excerpts:
        main(command.split())
        assert set(shown.splitlines()) <= set(capsys.readouterr().out.splitlines()), command


def without_time(text):
    """Text without trailing blanks and without how long a search took."""
    return re.sub(
        r"searched in [\d.]+ m?s", "searched in …", re.sub(r" +$", "", text, flags=re.MULTILINE)
    ).rstrip()


@pytest.mark.parametrize("module", DOCTESTS)
def test_docstring_examples(module):
    result = doctest.testmod(import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


def test_generated_pages_are_up_to_date(monkeypatch):
    # messages are wrapped, as readers see them
    monkeypatch.setattr(output, "message_columns", message_columns)
    spec = importlib.util.spec_from_file_location("generate", ROOT / "tools" / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for name, text in generate.pages().items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, (
            f"run: python tools/docs/generate.py ({name} is out of date)"
        )


def test_bloom_was_not_trained_on_50_gbps_a_node():
    """The figures of insights.md: its step on a node of 400 Gb/s (4 NICs of 100), and of 50 Gb/s."""
    import traincast as tc
    from traincast.accuracy.runs.run import load_bundled_runs

    run = dict(load_bundled_runs())["bloom-094"]
    slow = run.system.with_figures({"network.1.bandwidth": 12.5e9 / 8})
    there, here = (
        tc.estimate(run.model, system, run.plan, gbs=run.gbs, assumptions=run.stack).step_seconds
        for system in (run.system, slow)
    )
    page = (ROOT / "docs/insights.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| BLOOM was trained on 50 Gb/s"))
    said = re.findall(r"([\d.]+) s\b", row)
    assert said == [f"{seconds:.1f}" for seconds in (run.step_seconds, there, here)]
