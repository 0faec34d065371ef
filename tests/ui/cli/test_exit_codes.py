"""Exit codes, for every command: 0 an answer, 1 nothing fits, 2 input that cannot be used, 130 interrupted;
never a traceback."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import wraps
from inspect import signature
from io import StringIO
from pathlib import Path

import pytest

from every_command import EXAMPLES, NAMES, calls
from traincast.ui.cli.main import app
from traincast.ui.cli.output import progress

RUNS = Path(__file__).parents[3] / "examples" / "my_cluster" / "runs.csv"

TAKEN = {name: signature(app[name].default_command).parameters for name in NAMES}
FOLDERS = [("tune", "output")]  # what is written is a folder
WRITING = [(name, option) for name in NAMES for option in ("output", "html") if option in TAKEN[name]]


def refused(answer, *parts):
    """Check that a command refused its input, named some parts, and printed no traceback."""
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("traincast: ")
    assert "Traceback" not in answer.err
    for part in parts:
        assert part in answer.err


@pytest.mark.parametrize("name", NAMES)
def test_unknown_names_are_refused(name, run, folder):
    example = calls(name)[0]
    refused(run(f"{example} --wibble 3"), "--wibble")
    refused(run(f"{example} one too many"), "one")


@pytest.mark.parametrize("name", NAMES)
def test_missing_arguments_are_named(name, run):
    arguments = app[name].assemble_argument_collection()
    needed = [argument.name for argument in arguments if argument.required and argument.name != "*"]
    if needed:
        refused(run(name), *needed, "missing", f"traincast {name} --help")


def written(name, option, value):
    """An example of a command, writing to a given path."""
    example = calls(name)[0]
    words = f"--{option} '{value}'"
    return (
        re.sub(rf"--{option} \S+", lambda _: words, example)
        if f"--{option} " in example
        else f"{example} {words}"
    )


def ending(name, option):
    """Ending of the file that a command writes in its example."""
    match = re.search(rf"--{option} \S+(\.\w+)", " ".join([*EXAMPLES[name], *calls(name)]))
    return match[1] if match else ".html"


@pytest.mark.parametrize(("name", "option"), WRITING)
def test_a_place_that_cannot_be_written_to(name, option, run, folder):
    file = f"there{ending(name, option)}"
    (folder / file).write_text("mine")
    why = f"{file} is not a folder" if (name, option) in FOLDERS else "--force"
    refused(run(written(name, option, file)), file, why)
    assert (folder / file).read_text() == "mine"
    refused(run(written(name, option, f"{file}/{file}")), f"{file} is not a folder")


def test_a_folder_is_made(run, folder):
    assert run("export llama-3-8b --system dgx-h100 --tp 8 --output out/of/here/run.sh").code == 0
    assert (folder / "out" / "of" / "here" / "run.sh").exists()


def test_a_folder_is_no_place_for_a_file(run, folder):
    (folder / "a.parquet").mkdir()
    refused(run("study study.yaml --output a.parquet"), "a.parquet", "is a folder")
    refused(run("study study.yaml --output a.parquet --force"), "a.parquet", "is a folder")


@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="needs pipes that break")
@pytest.mark.parametrize("command", ["--help", "completion bash", "catalog --json"])
def test_a_closed_pipe_ends_the_program_quietly(command):
    arguments = [sys.executable, "-m", "traincast", *command.split()]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() in {0, -signal.SIGPIPE}


@pytest.mark.skipif(not hasattr(signal, "SIGPIPE"), reason="needs pipes that break")
def test_head_ends_a_long_answer_by_the_signal_of_pipes():
    """A pipe holds 64 KiB: the rest of 180 KB meets a reader that went away; docs/json.md says 141."""
    question = "plan llama-3-8b --system dgx-h100 --gpus 64 --json"
    arguments = [sys.executable, "-m", "traincast", *question.split()]
    with subprocess.Popen(arguments, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(1) == b"{"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == -signal.SIGPIPE


@pytest.mark.skipif(sys.platform == "win32", reason="closes files as POSIX systems do")
@pytest.mark.parametrize(
    ("words", "closed", "code", "said"),
    [
        ("flops llama-3-8b", ">&-", 2, "cannot write: standard output is closed"),
        ("flops llama-3-8b --json", ">&-", 2, "cannot write: standard output is closed"),
        ("--help", ">&-", 2, "cannot write: standard output is closed"),
        ("flops llama-3-8b", ">&- 2>&-", 2, ""),
        ("flops nosuch", "2>&-", 2, ""),  # what is wrong is no answer: nothing on standard output
        ("plan gpt-125m --system dgx-h100 --gpus 8 --price x", "2>&-", 2, ""),
        ("memory llama-3-8b --system rtx-4090 --seq 2048 >/dev/null", "2>&-", 1, ""),
    ],
)
def test_closed_output_keeps_the_exit_code(words, closed, code, said):
    command = f"{sys.executable} -m traincast {words} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in " ".join(done.stderr.split())


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
@pytest.mark.parametrize("words", ["flops nosuch", "flops nosuch --debug", "flops llama-3-8b >/dev/full"])
def test_messages_that_cannot_be_written_keep_the_exit_code(words):
    command = f"{sys.executable} -m traincast {words} 2>/dev/full"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")


SLOW = """
import sys
import time
from pathlib import Path
from traincast.planner.searches import SearchRequest
from traincast.ui.cli.main import main

def answer(self, progress):
    for done in range(1000):
        progress(done, 1000, 10**6)
        time.sleep(0.05)
        if done == 40:  # two seconds of work: a terminal would show a bar
            Path(sys.argv[1]).touch()

SearchRequest.answer = answer
main(["plan", "gpt-125m", "--system", "dgx-h100", "--gpus", "8"])
"""  # a search of a thousand batches and 50 s


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_long_search_shows_its_progress_on_a_terminal_and_can_be_interrupted(tmp_path):
    import pty

    ours, terminal = pty.openpty()
    arguments = [sys.executable, "-c", SLOW, str(tmp_path / "working")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=terminal) as process:
        os.close(terminal)
        shown = b""
        while b"M candidates/s" not in shown:
            shown += os.read(ours, 1 << 16)
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # the terminal ends with the process
            while rest := os.read(ours, 1 << 16):
                shown += rest
        assert process.wait() == 130
        assert process.stdout.read() == b""
    os.close(ours)
    assert re.search(rb"search .*\d+%", shown)
    assert re.search(rb"traincast: search interrupted after \d+%\r\n$", shown)


def test_no_progress_without_a_terminal(tmp_path):
    arguments = [sys.executable, "-c", SLOW, str(tmp_path / "working")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not (tmp_path / "working").exists():
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert re.fullmatch(rb"traincast: search interrupted after \d+%\n", process.stderr.read())
        assert process.wait() == 130


@pytest.mark.parametrize(("after", "is_shown"), [(60.0, False), (0.0, True)])
def test_progress_is_shown_after_a_while(after, is_shown, monkeypatch):
    monkeypatch.setattr("traincast.ui.cli.output.SHOWN_AFTER_SECONDS", after)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress("search") as report:
        time.sleep(0.1)
        report(1, 2, 1000)
    assert ("search" in sys.stderr.getvalue()) == is_shown
    assert is_shown or not sys.stderr.getvalue()


def test_progress_is_shown_once_work_takes_more_than_half_a_second(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress("search"):
        time.sleep(0.8)
    assert "search" in sys.stderr.getvalue()


@pytest.mark.parametrize(
    ("command", "work", "words"),
    [
        ("validate", "traincast.accuracy.validate", "validating"),
        (
            f"calibrate --system dgx-h100 --runs {RUNS}",
            "traincast.accuracy.fitted_to",
            "calibrating",
        ),
        ("reproduce 2410.00273", "traincast.planner.reproduce", "searching"),
    ],
)
def test_work_of_seconds_shows_progress(command, work, words, monkeypatch):
    """Who interrupts it reads which work it was, as a bar on a terminal says."""
    monkeypatch.setattr(work, lambda *_, **__: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt, match=f"{words} interrupted"):
        app(command.split(), result_action="return_value")


class Terminal(StringIO):
    """Standard error of a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize("name", NAMES)
def test_interrupted(name, run, folder, monkeypatch):
    command = app[name].default_command

    @wraps(command)
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(app[name], "default_command", interrupted)
    code, out, err = run(calls(name)[0])
    assert (code, out, err) == (130, "", "traincast: interrupted\n")
    code, out, err = run(f"{calls(name)[0]} --json")
    assert (code, json.loads(out)["error"]["exit_code"]) == (130, 130)


def test_a_mistake_of_the_program_is_said_to_be_one(run, monkeypatch):
    """Without a traceback, but with where to report it; --debug shows where it was raised."""

    def answer(self, progress):
        raise KeyError("a name that is not there")

    monkeypatch.setattr("traincast.planner.searches.SearchRequest.answer", answer)
    plain, debug, as_json = (
        run(f"plan gpt-125m --system dgx-h100 --gpus 8 {more}") for more in ("", "--debug", "--json")
    )
    said = "a mistake in traincast itself, please report it (CONTRIBUTING.md says where): KeyError: "
    assert (plain.code, plain.out) == (2, "")
    assert plain.err == f"traincast: {said}'a name that is not there'\n  --debug shows where\n"
    assert debug.err.startswith("Traceback")
    assert debug.err.endswith(plain.err)
    assert said in json.loads(as_json.out)["error"]["message"]


INTERRUPTED = """
import os, signal, sys

module = sys.argv[1]

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from traincast.__main__ import main
sys.argv[1:] = "plan gpt-125m --system dgx-h100 --gpus 8 --json".split()
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal of POSIX systems")
@pytest.mark.parametrize("module", ["cyclopts", "traincast.ui.cli.plan", "numpy", "traincast.step.estimates"])
def test_interrupted_while_a_module_is_imported(module):
    """Ctrl-C in the first moments, at any import, ends as it does later."""
    arguments = [sys.executable, "-c", INTERRUPTED, module]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "traincast: interrupted\n")
    assert json.loads(done.stdout)["error"]["exit_code"] == 130


IN_A_FINALIZER = """
import os, signal, sys
from traincast.planner.studies import executors

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

def run_chunk(chunk, real=executors.run_chunk):
    Finalized()
    return real(chunk)

executors.run_chunk = run_chunk
from traincast.__main__ import main
sys.argv[1:] = "study study.yaml --output out.parquet".split()
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal of POSIX systems")
def test_interrupted_in_a_finalizer(folder):
    """Python prints and drops what a ``__del__`` raises; Ctrl-C there ends a study as elsewhere."""
    (folder / "study.yaml").write_text(
        "models: [gpt3-1t]\nsystems: [b200-nvs64]\ngpus: [64]\nstrategies: [summa]\n"
        "vary: [{accelerator.hbm_bandwidth: {linspace: [1 TB/s, 9 TB/s, 3000]}}]\n"
    )
    arguments = [sys.executable, "-c", IN_A_FINALIZER]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    kept = "finished chunks are kept: the same command goes on from\n  there"  # wrapped at 80 columns
    assert (done.returncode, done.stderr) == (130, f"traincast: interrupted; {kept}\n")


def test_names_with_control_characters_are_refused(run, folder):
    """A terminal would act upon them; in a message they are written as escapes."""
    file = folder / "model.yaml"
    file.write_text('name: "\\e[31mred"\nlayers: 2\nhidden: 64\nheads: 4\nffn: 256\nseq: 64\n')
    refused(run("flops model.yaml"), "name = '\\\\x1b[31mred': has control characters")
    refused(run(["flops", "\x1b[31mred"]), "\\x1b[31mred")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("layers: 10000000", "layers = 10000000: must be at most 10,000"),
        ("hidden: 4611686018427387904", "hidden = 4611686018427387904: must be at most 1,073,741,824"),
    ],
)
def test_a_model_that_is_too_large_is_refused_before_any_work(line, said, run, folder):
    lines = {"name": "big", "layers": 2, "hidden": 64, "heads": 4, "ffn": 256, "seq": 64}
    name = line.partition(":")[0]
    text = "\n".join(line if key == name else f"{key}: {value}" for key, value in lines.items())
    (folder / "model.yaml").write_text(text)
    refused(run("plan model.yaml --system dgx-h100 --gpus 8"), said)


@pytest.mark.parametrize("command", ["flops FILE", "validate --runs FILE", "check FILE --system dgx-h100"])
def test_files_are_read_up_to_a_limit(command, run):
    """A device that never ends is one as well."""
    refused(run(command.replace("FILE", "/dev/zero")), "/dev/zero", "is larger than")


def test_a_link_stays_one_when_its_file_is_replaced(run, folder):
    (folder / "real.sh").write_text("mine")
    (folder / "run.sh").symlink_to("real.sh")
    assert run("export llama-3-8b --system dgx-h100 --tp 8 --output run.sh --force").code == 0
    assert (folder / "run.sh").is_symlink()
    assert (folder / "real.sh").read_text().startswith("#!")


@pytest.mark.parametrize(
    ("train", "part"),
    [
        ("loro", "did you mean lora or qlora"),
        ("lora:r=0", "r = 0: must be a whole number of at least 1"),
        ("lora:targets=kv_up", "'kv_up' is none of its q, k, v, qkv, proj, gate, up, fc1, fc2, head"),
        ("qlora:none.json", "none.json"),
    ],
)
def test_training_that_is_not_known_is_refused(train, part, run):
    refused(run(f"memory llama-3-8b --system rtx-4090 --seq 2048 --train {train}"), part)


def test_fine_tuning_answers(run):
    """An 8B model with QLoRA fits on a card of 24 GB; all of its weights with their states do not."""
    question = "memory llama-3-8b --system rtx-4090 --seq 2048 --json"
    tuned, full = run(f"{question} --train qlora"), run(question)
    assert (tuned.code, full.code) == (0, 1)
    assert json.loads(tuned.out)["trained"] == "LoRA of rank 16 on all layers, base in nf4"
    plan = "plan llama-3-8b --system rtx-4090 --gpus 1 --global-batch 8 --seq 2048"
    assert (run(f"{plan} --train qlora").code, run(plan).code) == (0, 1)
