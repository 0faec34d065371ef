"""Random command lines and files: an answer or a clear message, never a traceback, and never endless work.

Each case is a command line that works, changed: options added, dropped or given odd, extreme or infinite
values, files with such numbers, lost lines, bytes that are no text, or content that is made to hurt.
TRAINCAST_FUZZ=10000 tries more. Work is counted in calls of Python functions, not timed; memory is limited.
"""

import io
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

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bounded_memory import bounded_memory
from every_command import DESIGN, STUDY
from traincast.core.knobs import ALLOWED_VALUES
from traincast.ui.cli.app import app
from traincast.ui.cli.main import OWN_MISTAKE

EXAMPLES = Path(__file__).parents[3] / "examples"
CASES = int(os.environ.get("TRAINCAST_FUZZ", "40"))
PARTS = 14  # of the seeds, for workers to share
MAX_CALLS = 40_000_000  # the largest search of the catalogue's models on 4,096 GPUs makes a third
MAX_BYTES = 6 << 30  # of memory, above what this process has
PICKLED = "exec_1d_gpt3_1T_A100-NVS4.npy"  # the name that the reference code of arXiv 2410.00273 gives
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
    "plan llama-3-8b --system dgx-h100 --gpus 8 --global-batch 64 --tokens 15T --price 2.8 --json",
    f"study {PICKLED} --output table.csv",
    f"plot {PICKLED} --kind scaling --output figure.svg",
    "compare model.yaml --system dgx-h100 --gpus 8",
]
ALWAYS = {"tune": ["--manual"], "validate": ["--runs", "runs.csv"]}  # else it launches, or takes seconds
# start processes, draw or replay for seconds
NOT_TRIED = {"--workers", "--dask", "--mpi", "--figures", "--html", "--command", "--replay"}
ODD = [
    *("", "0", "-1", "1", "3", "7", "2.5", "1e9", "1e400", "-1e-320", "nan", "inf", str(10**30)),
    *("1,2", "1/3", "8:0.5,16:0.5", "2%", "80 GiB", "400 Gb/s", "1e-320 GB/s", "7 furlongs", "1M", "15T"),
    *("None", "true", "\x1b[31mred", "ä\u202e", "..", "/", "/dev/null", "/dev/zero", "missing.yaml", "--"),
    *FILES, *sorted({str(value) for values in ALLOWED_VALUES.values() for value in values}),
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
# Numbers at the ends of what floats and integers hold, and such as only some readers take for numbers
EXTREME = [
    *("1e308", "-1e308", "1.8e308", "1e300", "1e-300", "5e-324", "-inf", "Infinity", "-nan", "9" * 400),
    *(str(2**31), str(2**53 + 1), str(2**63), str(-(2**63)), "0x10", "1_000", "007", "٨", "+8", "8.", "1e3"),
    *("1e308 GB/s", "1e308%", "1e300h", "1e-300 GiB", "inf GB/s", "nan%", "1e308T", "1/0", "0/1", "1e308/1"),
]
UNITS = ["", "%", "h", "s", "T", " GB/s", " GiB", " PFLOP/s", "/2", ":0.5", "=1"]
extreme = st.one_of(
    st.sampled_from(EXTREME),
    st.builds("{!r}{}".format, st.floats(), st.sampled_from(UNITS)),
    st.integers().map(str),
)
odd = st.one_of(st.sampled_from(ODD), st.integers(-2, 5000).map(str), st.text(max_size=6), extreme)
IN_FILES = [
    *ODD,
    *EXTREME,
    ".inf",
    "-.inf",
    ".nan",
    "null",
    "!!python/object:os.system",
    "&a [*a]",
    "{x: 1}",
    "'",
]
DEEP = 5_000  # brackets, more than the interpreter's stack takes
HOSTILE = {  # content that is made to hurt whoever reads it
    "brackets": b"[" * DEEP + b"]" * DEEP,
    "mappings": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "blocks": b"".join(b" " * i + b"a:\n" for i in range(400)),
    "keys": b"{" + b",".join(b'"k%d": 1' % i for i in range(5_000)) + b"}",
    "columns": b",".join(b"c%d" % i for i in range(5_000)) + b"\n" + b"1," * 5_000,
    "laughs": b"a: &a [x,x,x,x,x,x,x,x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 8)) for c in b"bcdefghi"),
    "digits": b"layers: " + b"9" * 10_000,
    "line": b"x" * 100_000,
    "nothing": b"",
    "zeros": b"\x00" * 1_000,
    "utf-16": "layers: 2".encode("utf-16"),
}
cells = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["dp", "tp", "t", "t_comp"]), inner, max_size=3),
    ),
    max_leaves=6,
)


@st.composite
def pickled(draw):
    """A pickled array as the reference code writes, with some of its cells, or other bytes, replaced."""
    plan = [6.7, 73.4, {"dp": 1, "tp": 16, "pp": 32, "mbs": 1}, {"t": 614.2, "t_comp": 412.1, "nv_tp": 4}]
    row = [4, [6.7], [6.7], draw(st.sampled_from([[512], np.array([512]), np.array([np.inf])])), [[plan]]]
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.sampled_from([row, plan]))
        place[draw(st.integers(0, len(place) - 1))] = draw(cells)
    array = np.empty((1, len(row)), dtype=object)
    array[0] = row
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    content = bytearray(file.getvalue())
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.sampled_from([None, None, None, 40, 140]))])


@st.composite
def changed(draw, text):
    """A text with some words replaced, lines lost or doubled, bytes that are no text, or hostile content."""
    if not draw(st.integers(0, 9)):
        return draw(st.sampled_from(sorted(HOSTILE.values())))
    for change in draw(st.lists(st.sampled_from(["word", "word", "lost", "doubled", "cut"]), max_size=3)):
        if change == "word":
            words = list(re.finditer(r"[\w.+-]+", text))
            word = draw(st.sampled_from(words)) if words else None
            if word:
                new = draw(st.one_of(st.sampled_from(IN_FILES), st.floats().map(repr)))
                text = text[: word.start()] + new + text[word.end() :]
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
    changes = ["value", "extreme", "option", "lost", "word"]
    for change in draw(st.lists(st.sampled_from(changes), max_size=3)):
        at = draw(st.integers(0, max(len(words) - 1, 0)))
        if change == "option" and OPTIONS[name]:
            words += [draw(st.sampled_from(OPTIONS[name])), *draw(st.lists(odd, max_size=1))]
        elif change == "lost":
            del words[at : at + 1]
        elif change == "word":
            words.insert(at, draw(odd))
        elif change == "extreme":  # in place of a number
            numbers = [i for i, word in enumerate(words) if re.fullmatch(r"[\d.,]+\w?", word)]
            if numbers:
                words[draw(st.sampled_from(numbers))] = draw(extreme)
        elif words:
            words[at] = draw(odd)
    if name in ALWAYS and ALWAYS[name][0] not in words:
        words += ALWAYS[name]
    used = [file for file in FILES if file in words]
    files = {file: draw(changed(FILES[file])) for file in used}
    if PICKLED in words:
        files[PICKLED] = draw(pickled())
    return [name, *words], files


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
