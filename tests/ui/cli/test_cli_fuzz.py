"""Random command lines and files: an answer or a clear message, never a traceback, and never endless work.

Each case is a command line that works, changed: options added, dropped or given odd values, files with odd
numbers, lost lines or bytes that are no text. TRAINCAST_FUZZ=10000 tries more. Work is counted in calls of
Python functions, not timed; memory is limited.
"""

import json
import os
import re
import signal
import sys
import tempfile
import warnings
from contextlib import contextmanager
from cProfile import Profile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bounded_memory import bounded_memory
from every_command import DESIGN, STUDY
from traincast.core.knobs import ALLOWED
from traincast.ui.cli.app import app
from traincast.ui.cli.main import OWN_MISTAKE

EXAMPLES = Path(__file__).parents[3] / "examples"
CASES = int(os.environ.get("TRAINCAST_FUZZ", "40"))
PARTS = 14  # of the seeds, for workers to share
MAX_CALLS = 40_000_000  # the largest search of the catalogue's models on 4,096 GPUs makes a third
MAX_BYTES = 6 << 30  # of memory, above what this process has
FILES = {
    "model.yaml": "name: small\nlayers: 12\nhidden: 768\nheads: 12\nffn: 3072\nseq: 1024\nvocab: 50257\n"
    "causal: true\nlocal: {window: 128, global_every: 4}\n",
    "config.json": (EXAMPLES / "llama-3.1-405b/config.json").read_text(encoding="utf-8"),
    "hybrid.json": (EXAMPLES / "nemotron-3-nano/config.json").read_text(encoding="utf-8"),
    "machine.yaml": (EXAMPLES / "measured_cpu/machine.yaml").read_text(encoding="utf-8"),
    "design.yaml": DESIGN,
    "study.yaml": STUDY.replace("gpt3-1t", "gpt-125m").replace("512, 1024", "8, 16"),
    **{
        name: (EXAMPLES / "my_cluster" / name).read_text(encoding="utf-8")
        for name in (
            "pretrain.sh",
            "ds_config.json",
            "runs.csv",
            "gemm.csv",
            "all_reduce.txt",
            "megatron.log",
            "profile.json",
        )
    },
}
SEEDS = [
    "plan gpt-125m --system dgx-h100 --gpus 8 --top 2",
    "plan model.yaml --system machine.yaml --gpus 2 --global-batch 32",
    "plan config.json --system dgx-h100 --gpus 256 --global-batch 64 --seq 4096 --strategy 1d",
    "plan hybrid.json --system dgx-h100 --gpus 16 --global-batch 64 --seq 2048 --framework torchtitan",
    "estimate model.yaml --system dgx-a100 --tp 2 --dp 8 --global-batch 64 --operations",
    "estimate mixtral-8x7b --system dgx-h100 --tp 2 --ep 8 --dp 32 --global-batch 512",
    "memory llama-3-8b --system rtx-4090 --seq 2048 --train qlora",
    "advise gpt-1.3b --system dgx-a100 --tp 2 --dp 32 --gbs 512 --step-seconds 0.9",
    "trace gpt-125m --system dgx-h100 --pp 2 --dp 2 --gbs 8 --output trace.json",
    "export llama-3-8b --system dgx-h100 --tp 8 --gbs 16 --to torchtitan",
    "check pretrain.sh --system dgx-h100",
    "check ds_config.json --system dgx-h100 --model llama-3-8b --gpus 64",
    "flops model.yaml --seq 2048",
    "limits --accelerator h100-sxm-80 --layer 4096x16384 --batch 1M",
    "scaling --model gpt-13b --system polaris --gpus 1,8",
    "study study.yaml --output table.parquet",
    "merge study.yaml --output table.parquet",
    "design design.yaml --output machines.json",
    "tune model.yaml --system machine.yaml --gpus 2 --global-batch 32 --manual --to megatron --output tuned",
    "profile llama-3-8b --trace profile.json --system dgx-h100 --tp 2 --dp 4 --gbs 32",
    "plot table.csv --kind scaling --output figure.svg",
    "validate --runs runs.csv",
    "calibrate --system dgx-h100 --runs runs.csv --output fitted.yaml",
    "calibrate --system dgx-h100 --nccl all_reduce.txt --output network.yaml",
    "catalog llama-3-8b",
    "schema plan",
    "completion bash",
    "reproduce 2410.00274",
]
ALWAYS = {"tune": ["--manual"], "validate": ["--runs", "runs.csv"]}  # else it launches, or takes seconds
# start processes, draw or replay for seconds
NOT_TRIED = {"--workers", "--dask", "--mpi", "--figures", "--html", "--command", "--replay"}
ODD = [
    *("", "0", "-1", "1", "3", "7", "2.5", "1e9", "1e400", "-1e-320", "nan", "inf", str(10**30)),
    *("1,2", "1/3", "8:0.5,16:0.5", "2%", "80 GiB", "400 Gb/s", "1e-320 GB/s", "7 furlongs", "1M", "15T"),
    *("None", "true", "\x1b[31mred", "ä\u202e", "..", "/", "/dev/null", "/dev/zero", "missing.yaml", "--"),
    *FILES, *sorted({str(value) for values in ALLOWED.values() for value in values}),
]  # fmt: skip
OPTIONS = {
    name: [
        option
        for argument in app[name].assemble_argument_collection()
        for option in argument.names
        if option.startswith("--") and option not in NOT_TRIED
    ]
    for name in {seed.split()[0] for seed in SEEDS}
}
odd = st.one_of(st.sampled_from(ODD), st.integers(-2, 5000).map(str), st.text(max_size=6))
IN_FILES = [*ODD, "-5", "1e-300", "null", "!!python/object:os.system", "&a [*a]", "{x: 1}", "'"]


@st.composite
def changed(draw, text):
    """A text with some words replaced, lines lost or doubled, or bytes that are no text."""
    for change in draw(st.lists(st.sampled_from(["word", "word", "lost", "doubled", "cut"]), max_size=3)):
        if change == "word":
            words = list(re.finditer(r"[\w.+-]+", text))
            word = draw(st.sampled_from(words)) if words else None
            if word:
                text = text[: word.start()] + draw(st.sampled_from(IN_FILES)) + text[word.end() :]
        elif change == "cut":
            text = text[: draw(st.integers(0, len(text)))]
        else:
            lines = text.splitlines(keepends=True)
            at = draw(st.integers(0, max(len(lines) - 1, 0)))
            text = "".join(lines[:at] + lines[at : at + 1] * 2 * (change == "doubled") + lines[at + 1 :])
    content = text.encode("utf-8", "surrogatepass")
    return content + draw(st.sampled_from([b"", b"", b"", b"\xff\xfe\x00", b"\x1b]0;title\x07"]))


@st.composite
def cases(draw, part):
    """Words of a command line, and the files that it finds; of the seeds of a part."""
    name, *words = draw(st.sampled_from(SEEDS[part::PARTS])).split()
    for change in draw(st.lists(st.sampled_from(["value", "option", "lost", "word"]), max_size=3)):
        at = draw(st.integers(0, max(len(words) - 1, 0)))
        if change == "option" and OPTIONS[name]:
            words += [draw(st.sampled_from(OPTIONS[name])), *draw(st.lists(odd, max_size=1))]
        elif change == "lost":
            del words[at : at + 1]
        elif change == "word":
            words.insert(at, draw(odd))
        elif words:
            words[at] = draw(odd)
    if name in ALWAYS and ALWAYS[name][0] not in words:
        words += ALWAYS[name]
    used = [file for file in FILES if file in words]
    return [name, *words], {file: draw(changed(FILES[file])) for file in used}


class TooMuchWork(BaseException):
    """More calls than any question needs."""


@contextmanager
def bounded():
    """Raise an error where more functions are called, or more memory is taken, than the bounds allow.

    The counting, which slows Python down, starts after a second of work: most cases take less.
    """
    counted = Profile(subcalls=False, builtins=False)

    def look(*_):
        if sum(function.callcount for function in counted.getstats()) > MAX_CALLS:
            raise TooMuchWork
        counted.enable(subcalls=False, builtins=False)

    with bounded_memory(MAX_BYTES):
        signal.signal(signal.SIGVTALRM, look)
        signal.setitimer(signal.ITIMER_VIRTUAL, 1, 1)  # seconds of this process alone
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            counted.disable()


@settings(
    max_examples=-(-CASES // PARTS), deadline=None, suppress_health_check=list(HealthCheck), database=None
)
@given(data=st.data())
@pytest.mark.random
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.skipif(sys.platform == "win32", reason="bounds the memory as POSIX systems do")
def test_any_command_line_and_file(part, data, run, tmp_path, monkeypatch):
    words, files = data.draw(cases(part))
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    monkeypatch.chdir(folder)
    with bounded(), warnings.catch_warnings():
        warnings.simplefilter("error")
        code, out, err = run(words)
    assert code in (0, 1, 2)
    assert OWN_MISTAKE not in err, err
    assert "Traceback" not in err
    assert "more memory" not in err
    assert (code == 0) or err.startswith(("traincast: ", "not expressed: ", "left at "))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", out + err)
    if "--json" in words and out and words[0] != "completion":
        json.loads(out, parse_constant=lambda text: pytest.fail(f"{text} in an answer"))
