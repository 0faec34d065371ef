"""The wheel, installed in an empty environment and used without extras; nightly with each Python at hand."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from environments import CONSTRAINTS, OWN, interpreter, pinned

ROOT = Path(__file__).parents[1]
VERSIONS = [
    pytest.param(version, marks=[] if version == OWN else pytest.mark.nightly)
    for version in ("3.11", "3.12", "3.13", "3.14")
]


def run(*command, cwd, status=0):
    """Standard output of a command that ends with a status."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV_"))}
    words = [str(part) for part in command]
    done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, env=pinned(clean))
    assert done.returncode == status, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout if not status else done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("traincast-*.whl")
    return built


def test_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"traincast"}
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {name.removeprefix("src/") for name in listed.stdout.splitlines()} <= set(names)
    assert "traincast/docs/questions/memory.md" in names
    assert "traincast/examples/my_cluster/pretrain.sh" in names
    assert not [name for name in names if name.startswith("traincast/docs/") and not name.endswith(".md")]


def versions_of(*names):
    """Versions that constraints.txt has."""
    pins = dict(line.split("==") for line in CONSTRAINTS.read_text().splitlines() if not line.startswith("#"))
    return [pins[name] for name in names]


def test_wheel_is_built_with_the_version_that_is_pinned(wheel):
    """A newer hatchling than that of the commit would otherwise build it, on the day that it comes out."""
    archive = zipfile.ZipFile(wheel)
    (said,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
    (version,) = versions_of("hatchling")
    assert f"Generator: hatchling {version}\n" in archive.read(said).decode()


HELP = """
import sys
from traincast.ui.cli.main import main
for name in sys.argv[1:]:
    try:
        main([name, "--help"])
    except SystemExit as stop:
        assert not stop.code, name
"""


def assert_references_resolve(inside, tmp_path):
    """What `--help` of each command refers to is in the package: pages, examples, schemas."""
    traincast = inside / "traincast"
    every = run(traincast, "--help", cwd=tmp_path)
    names = re.findall(r"^  ([a-z]+) ", every.partition("Options:")[0], re.MULTILINE)
    said = run(inside / "python", "-c", HELP, *names, cwd=tmp_path)  # one process for all
    named = re.findall(r"traincast docs ([\w/]+)(?:; also ([\w/, ]+))?", said)
    pages = {page for first, others in named for page in (first, *filter(None, others.split(", ")))}
    known = json.loads(run(traincast, "docs", "--json", cwd=tmp_path))["pages"]
    assert {"recipes", "studies", "export"} <= pages <= set(known)
    assert set(re.findall(r"docs/(\w+)\.md", said)) <= set(known)
    assert run(traincast, "docs", "docs/export.md", cwd=tmp_path).startswith("# Launches")
    run(traincast, "example", "--output", "examples", cwd=tmp_path)
    assert not [file for file in re.findall(r"examples/[\w./]+\w", said) if not (tmp_path / file).exists()]


@pytest.mark.parametrize("version", VERSIONS)
def test_wheel_without_extras(wheel, version, tmp_path):
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    run(python, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    inside = tmp_path / "env" / "bin"
    pip = (sys.executable, "-m", "pip", "--python", inside / "python", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-compile", wheel, cwd=tmp_path)
    brought = "import numpy, pydantic; print(numpy.__version__, pydantic.__version__)"
    assert run(inside / "python", "-c", brought, cwd=tmp_path).split() == versions_of("numpy", "pydantic")
    traincast = inside / "traincast"
    question = ("gpt3-175b", "--system", "h200-nvs8")
    answer = json.loads(run(traincast, "plan", *question, "--gpus", 64, "--json", cwd=tmp_path))
    launch = ("llama-3-8b", "--system", "dgx-h100", "--tp", 4, "--dp", 16, "--gbs", 128, "--to", "megatron")
    script = run(traincast, "export", *launch, cwd=tmp_path)
    assert "--tensor-model-parallel-size" in script
    api = "import traincast as tc; print(tc.search('gpt3-175b', 'h200-nvs8', gpus=64).best[1].step_seconds)"
    seconds = float(run(inside / "python", "-W", "error", "-c", api, cwd=tmp_path))
    assert seconds == answer["plans"][0]["step_seconds"]
    assert_references_resolve(inside, tmp_path)
    refused = run(
        traincast,
        "study",
        ROOT / "examples" / "strong_scaling.yaml",
        "--output",
        "a.parquet",
        cwd=tmp_path,
        status=2,
    )
    assert refused == "traincast: polars is not installed: pip install 'traincast[results]'\n"
    missing = "import traincast as tc\ntry: tc.study\nexcept ImportError as error: print(error)"
    assert "traincast[results]" in run(inside / "python", "-c", missing, cwd=tmp_path)
