"""Speed of the engine: `make bench`. Medians of several runs; ratios to a baseline in the same run.

The baseline evaluates one candidate at a time with `estimate`, as a script around a scalar model would.
"""

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import traincast

STUDY = """
import resource, sys, time
from dataclasses import replace
from traincast.core import STRATEGY_ALIASES
from traincast.planner.paper_results import PUBLISHED_SEARCHES
from traincast.catalog.load import load_model, load_system
from traincast.planner.searches import search_each
models = [load_model(name) for name in PUBLISHED_SEARCHES.models.values()]
systems = [load_system(f"{gpu}-nvs{domain}") for domain in PUBLISHED_SEARCHES.domains for gpu in PUBLISHED_SEARCHES.accelerators]
if sys.argv[1] == "all":
    systems = [replace(system, accelerator=replace(system.accelerator, hbm_bytes=float("inf"))) for system in systems]
begin = time.process_time()
candidates = feasible = 0
for model in models:
    for strategy in STRATEGY_ALIASES.values():
        for system in systems:
            for result in search_each(
                model, system, gpus=PUBLISHED_SEARCHES.gpus, gbs=PUBLISHED_SEARCHES.global_batch, assumptions="paper", strategy=strategy, top=1
            ):
                candidates += result.candidates
                feasible += result.feasible
                result.least_seconds
print(time.process_time() - begin, candidates, feasible, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""  # noqa: E501


SWEEP = """
import sys, time
import numpy as np
from traincast.planner.studies.executors import run_study
from traincast.planner.question import Question
from traincast.planner.studies.sweep import define_study

def main():
    capacities, bandwidths = np.linspace(80e9, 1000e9, 32), np.linspace(500e9, 16000e9, int(sys.argv[3]))
    vary = [{"accelerator.hbm_bytes": capacities}, {"accelerator.hbm_bandwidth": bandwidths}]
    sizes = [4 << power for power in range(13)]
    question = Question(gpus=sizes, strategy=sys.argv[1], top=1)
    study = define_study(["gpt3-1t"], ["b200-nvs8"], question, batches=4096, vary=vary)
    begin = time.perf_counter()
    frame = run_study(study, workers=int(sys.argv[2])).frame
    print(time.perf_counter() - begin, frame["candidates"].sum())

if __name__ == "__main__":
    main()
"""


def sweep(strategy: str, workers: int, bandwidths: int) -> tuple[float, int]:
    """Run the capacity × bandwidth study in a fresh interpreter; return seconds and candidates."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:  # a file, which local workers can import
        script.write(SWEEP)
        script.flush()
        command = [sys.executable, script.name, strategy, str(workers), str(bandwidths)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(out[0]), int(out[1])


def median(run: Callable[[], float], repeats: int) -> float:
    """Return the median of several runs."""
    return statistics.median(run() for _ in range(repeats))


def process(*arguments: str) -> float:
    """Return the wall time of a fresh interpreter [s]."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def study(timed: str, repeats: int) -> tuple[float, int, int, float]:
    """Run the paper's study in fresh interpreters; return median seconds, candidates, those timed, peak
    memory [MiB].

    `timed` is "fitting", or "all" for unlimited memory, so that every candidate is timed.
    """
    command = [sys.executable, "-c", STUDY, timed]
    runs = [
        subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        for _ in range(repeats)
    ]
    peak = max(float(run[3]) for run in runs)
    return statistics.median(float(run[0]) for run in runs), int(runs[0][1]), int(runs[0][2]), peak


def scalar_rate() -> float:
    """Return candidates per second, one at a time with `estimate`."""
    import numpy as np

    import traincast as tc
    from traincast.planner.frameworks.candidate_batch import CandidateBatch
    from traincast.planner.space.enumeration import enumerate_space

    model, system = tc.load_model("gpt3-1t"), tc.load_system("h200-nvs8")
    space = enumerate_space(model, (2048,), 8, 4096, CandidateBatch("summa"))
    layout, fill = space.candidates(np.arange(len(space.counts)))
    every = slice(None, None, max(1, len(fill) // 1000))
    columns = space.plans(layout[every], fill[every])
    plans = [columns.row(i) for i in range(len(columns.mbs))]  # type: ignore[arg-type]
    begin = time.perf_counter()
    for plan in plans:
        est = tc.estimate(model, system, plan, gbs=4096)
        _ = est.step_seconds, est.memory_bytes
    return len(plans) / (time.perf_counter() - begin)


def forget() -> None:
    """Clear the caches that searches share."""
    from traincast.planner.space.enumeration import _enumerate, _placed_degrees, enumerate_space
    from traincast.planner.space.evaluation import completed_spaces
    from traincast.step.pipeline_stages import distinct_devices

    for cached in (_enumerate, _placed_degrees, enumerate_space, completed_spaces, distinct_devices):
        cached.cache_clear()


def one_search(strategy: str) -> float:
    """Return the seconds of one search without caches, including the ten best plans."""
    import traincast as tc

    model, system = tc.load_model("gpt3-1t"), tc.load_system("h200-nvs8")
    forget()
    begin = time.perf_counter()
    _ = tc.search(model, system, gpus=16384, gbs=4096, strategy=strategy).plans
    return time.perf_counter() - begin


MODERN = (  # model, GPUs, framework, most that it should take relative to the paper's study
    ("llama-3.1-405b", 16384, "any", 1.0),
    ("llama-3.1-405b", 16384, "megatron", None),
    ("deepseek-v3", 2048, "any", 1.2),
    ("deepseek-v3", 2048, "megatron", None),
    ("llama-3-70b", 512, "megatron", 0.08),
)


def beside_goal(ratio: float, goal: float | None) -> str:
    """Return a ratio to the study's time, and the most that it should be."""
    if goal is None:
        return f"{ratio:.2f} times the study"
    return f"{ratio:.2f} times the study (goal: at most {goal}, {'met' if ratio <= goal else 'missed'})"


def modern(name: str, gpus: int, framework: str) -> tuple[float, int, float]:
    """Search a current model on DGX H100 without caches; return seconds, candidates, share timed in full.

    The seconds are of the processor, the least of three searches.
    """
    import traincast as tc

    model, system = tc.load_model(name), tc.load_system("dgx-h100")
    seconds = []
    for _ in range(3):
        forget()
        begin = time.process_time()
        result = tc.search(model, system, gpus=gpus, gbs=model.global_batch or gpus, framework=framework)
        _ = result.plans
        seconds.append(time.process_time() - begin)
        if seconds[-1] > LONG:
            break
    return min(seconds), result.candidates, result.share_timed


# Processor seconds of the plain answers to two questions, and of the paper's study on the same machine,
# at commit 0d6f6360 (medians of three in turns, 28 November 2026): what `everything_asked` compares with.
STUDY_THEN = 0.526
QUESTIONS = {
    "A": (
        "plan deepseek-v3 --system hgx-h800 --gpus 2048 --seq 4096 --global-batch 15360 "
        "--precision fp8-block --framework any",
        1.45,
    ),
    "B": ("plan deepseek-v3 --system dgx-h100 --gpus 2048 --framework any", 1.67),
}
ASKED = {"": 0.7, "--tp 16": 1.3, "--why": 1.5, "--json": 1.3, "--html": 3.0}  # and most multiples wanted
MEMORY_GOAL = 400  # MB


# A process that starts another has its peak memory counted for that one as well, so a small one starts it.
STARTER = """
import resource, subprocess, sys
code = subprocess.call([sys.executable, *sys.argv[1:]], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(code, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


def processor(*arguments: str) -> tuple[float, float]:
    """Return the processor time [s] and the peak memory [MB] of a fresh interpreter."""
    started = [sys.executable, "-c", STARTER, *arguments]
    code, seconds, kibibytes = subprocess.run(
        started, check=True, capture_output=True, text=True
    ).stdout.split()
    assert code == "0", arguments
    return float(seconds), float(kibibytes) * 1024 / 1e6


def everything_asked(study_seconds: float) -> None:
    """Print what each output of two questions takes, as a multiple of the plain answer's time then."""
    for name, (question, then) in QUESTIONS.items():
        for asked, goal in ASKED.items():
            with tempfile.TemporaryDirectory() as folder:
                report = [f"{folder}/report.html"] if asked == "--html" else []
                seconds, memory = processor("-m", "traincast", *question.split(), *asked.split(), *report)
            multiple = seconds / (then * study_seconds / STUDY_THEN)
            met = "met" if multiple <= goal else "missed"
            fits = "met" if memory <= MEMORY_GOAL else "missed"
            print(
                f"  {name} {asked or 'plain':<8}{seconds:6.2f} s, {multiple:5.2f} (goal: at most {goal}, "
                f"{met}), {memory:5.0f} MB (goal: at most {MEMORY_GOAL}, {fits})"
            )


SLIDER_GOAL = 0.06  # most that an answer to a step of a slider should take relative to the study


SLIDER_RATIO_GOAL = 1.5  # most that such an answer for deepseek-v3 should take relative to llama-3-70b


def slider(steps: int, model: str, gpus: int) -> float:
    """Answer steps of the page's slider of memory bandwidth; return the median processor seconds of one."""
    from traincast.ui.explorer.answers import search

    def step(bandwidth: float) -> float:
        state = {"model": model, "gpus": gpus, "framework": "megatron"}
        begin = time.process_time()
        search(state | {"figures": {"accelerator.hbm_bandwidth": bandwidth}}, lambda *_: None)
        return time.process_time() - begin

    step(3e12)  # enumerates the space, as the page's first answer does
    return statistics.median(step(3e12 + 1e9 * i) for i in range(1, steps + 1))


DESIGN = Path(__file__).with_name("design.yaml")
DESIGN_TARGET = 60  # of a capacity × bandwidth study, most wanted


def design() -> tuple[float, int, int]:
    """Search the machines of a large design; return seconds, machines of the grid and searched."""
    from traincast.planner.designs.design_file import load_question
    from traincast.planner.designs.refinement import find_designs

    begin = time.perf_counter()
    found = find_designs(load_question(DESIGN))
    assert found.refinement is not None
    return time.perf_counter() - begin, found.refinement.machines, found.refinement.searched


LONG = 10.0  # seconds of a search that is not repeated
ASSUMED = ("paper", "megatron-core-2025", "megatron-lm-2022")  # the last paced by its host


def assumed(repeats: int) -> dict[str, tuple[float, int]]:
    """Evaluate the same candidates with unlimited memory under several assumptions; return seconds, and how
    many are timed."""
    from dataclasses import replace

    import traincast as tc

    model, system = tc.load_model("llama-3.1-405b"), tc.load_system("dgx-h100")
    unlimited = replace(system, accelerator=replace(system.accelerator, hbm_bytes=float("inf")))

    def once(name: str) -> tuple[float, int]:
        begin = time.perf_counter()
        result = tc.search(
            model,
            unlimited,
            gpus=16384,
            gbs=model.global_batch,
            assumptions=name,
            framework="any",
            locks={"zero": 1, "schedule": "1f1b"},
        )
        return time.perf_counter() - begin, result.feasible

    once(ASSUMED[0])  # enumerates the space, which is cached
    runs = {name: [once(name) for _ in range(repeats)] for name in ASSUMED}
    return {
        name: (statistics.median(seconds for seconds, _ in results), results[0][1])
        for name, results in runs.items()
    }


COMMANDS = (  # none but the last should take more than half a second
    "--help",
    "plan --help",
    "catalog dgx-h100",
    "completion bash",
    "__complete plan llama-",
    "estimate gpt3-1t --system h200-nvs8 --tp 8 --pp 16 --dp 16",
    "memory llama-3-70b --system dgx-h100 --tp 8 --pp 4 --dp 4",
    "plan gpt3-1t --system h200-nvs8 --gpus 2048",
    "plan llama-3-70b --system dgx-h100 --gpus 512 --global-batch 512",
)


def main() -> None:
    """Run all benchmarks and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    repeats = arguments.repeats
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    compileall.compile_dir(Path(traincast.__file__).parent, quiet=2)
    scalar = scalar_rate()
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, medians of {repeats} runs\n")
    print("The paper's study: 54 searches on 13 numbers of GPUs each, enumeration included, one process")
    study_seconds = 0.0
    for timed in ("fitting", "all"):
        seconds, candidates, placed, peak = study(timed, repeats)
        rate = candidates / seconds
        study_seconds = study_seconds or seconds  # of those that fit
        print(
            f"  {candidates:,} candidates, {placed:,} timed ({timed}): {seconds:.3f} s, {rate / 1e6:.1f} M "
            f"candidates/s,"
        )
        print(f"    {rate / scalar:,.0f} times the baseline, peak memory {peak:.0f} MiB")
    print(
        f"  baseline, one candidate at a time: {scalar:,.0f} candidates/s ({1e3 / scalar:.2f} ms per "
        f"estimate)\n"
    )
    print("One search of GPT3-1T on 16,384 H200, the ten best plans estimated")
    for strategy in ("1d", "summa", "context", "1d,summa,context"):
        print(
            f"  {strategy:<18}{1e3 * median(lambda strategy=strategy: one_search(strategy), repeats):8.1f} ms"
        )
    print("\nOne search for a model of today on DGX H100, the ten best plans estimated")
    for name, gpus, framework, goal in MODERN:
        seconds, candidates, timed_share = modern(name, gpus, framework)
        print(
            f"  {name} on {gpus:,}, {framework:<9}{candidates:>11,} candidates, {timed_share:.2%} timed: "
            f"{seconds:.3f} s, {beside_goal(seconds / study_seconds, goal)}"
        )
    seconds = slider(repeats, "llama-3-70b", 512)
    print(
        f"\nA step of the explorer's slider, llama-3-70b on 512: {seconds:.3f} s, "
        f"{beside_goal(seconds / study_seconds, SLIDER_GOAL)}"
    )
    ratio = slider(repeats, "deepseek-v3", 2048) / seconds
    met = "met" if ratio <= SLIDER_RATIO_GOAL else "missed"
    print(f"  deepseek-v3 on 2,048: {ratio:.2f} times that (goal: at most {SLIDER_RATIO_GOAL}, {met})")
    print("\nEverything asked of a search, as a multiple of its plain answer at commit 0d6f6360")
    everything_asked(study_seconds)
    print(
        "\nThe same candidates under several assumptions: llama-3.1-405b on 16,384 GPUs, unlimited memory, "
        "enumeration kept"
    )
    costs = assumed(repeats)
    for name, (seconds, timed) in costs.items():
        ratio = seconds / costs[ASSUMED[0]][0]
        print(
            f"  {name:<20}{timed:>11,} candidates: {seconds:.2f} s, {timed / seconds / 1e6:.2f} M/s, "
            f"{ratio:.2f} times paper"
        )
    from traincast.planner.studies.executors import run_study
    from traincast.ui.figures.paper import paper_figures, paper_studies

    print(
        "\nCapacity × bandwidth: 32 × 28 machines on 13 numbers of GPUs, results table included, one process"
    )
    sweep_seconds = {}
    for strategy in ("1d", "summa"):
        sweep_seconds[strategy], candidates = sweep(strategy, 1, 28)
        seconds = sweep_seconds[strategy]
        print(
            f"  {strategy:<6}{candidates:>12,} candidates: {seconds:.2f} s, "
            f"{candidates / seconds / 1e6:,.0f} M candidates/s"
        )
    seconds, machines, searched = design()
    print(
        f"  design of {machines:,} machines for five models, {searched:,} searched: {seconds:.2f} s, "
        f"{seconds / sweep_seconds['1d']:.1f} times the 1d study (at most {DESIGN_TARGET})"
    )
    begin = time.perf_counter()
    candidates = run_study(paper_studies()["flops-capacity"]).frame["candidates"].sum()
    seconds = time.perf_counter() - begin
    rate = f"{candidates / seconds / 1e6:,.0f} M candidates/s"
    print(f"  FLOP rate × capacity, 1d {candidates:>12,} candidates: {seconds:.2f} s, {rate}")
    begin = time.perf_counter()
    names = [stem for stem, _ in paper_figures()]
    print(f"  all {len(names)} figures of the paper, their studies run: {time.perf_counter() - begin:.1f} s")
    (alone, candidates), (together, _) = sweep("summa", 1, 600), sweep("summa", 2, 600)
    print(
        f"  summa, 32 × 600 machines: {candidates / alone / 1e6:,.0f} M candidates/s; two workers "
        f"{alone / together:.2f} times one"
    )
    bare = median(lambda: process("-c", "pass"), repeats)
    package = median(lambda: process("-c", "import traincast"), repeats)
    print("\nWhole processes")
    print(f"  import traincast  {1e3 * (package - bare):8.1f} ms more than bare Python ({1e3 * bare:.1f} ms)")
    for command in COMMANDS:
        taken = median(lambda command=command: process("-m", "traincast", *command.split()), repeats)
        print(f"  {1e3 * taken:8.1f} ms  traincast {command}")


if __name__ == "__main__":
    main()
