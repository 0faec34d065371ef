"""Messages describe all mistakes in a command line at once, and name the help page."""

import pytest

WRONG = {
    "plan": ["MODEL: missing", "--system: missing, such as --system h100", "--gpus: missing"],
    "plan m --gpus=8": ["--system: missing, such as --system h100"],
    "plan m --systm s --gpu 8": [
        "--systm: unknown option; did you mean --system?",
        "--gpu: unknown option; write --gpus N, or --system NAME",
        "--system: missing, such as --system h100",
        "--gpus: missing",
    ],
    "plan m --system 8xH100": ["--gpus: missing; write --system h100 --gpus 8"],
    "plan m --system": ["--system: its value is missing", "--gpus: missing"],
    "plan m --system s --gpus 8,16": ["--gpus = '8,16': must be a whole number; compare takes several"],
    "plan m --system s --gpus 8 --gbs 4M": [
        "--gbs = '4M': must be a whole number of sequences; of tokens, write --tokens-per-batch 4M"
    ],
    "plan m --system s --gpus 8 --cost 2.5": ["'2.5': not expected here; write --price 2.5"],
    "plan m --system s --gpus -3h": ["--gpus = '-3h': must be a whole number"],
    "plan m --system s --gpus 8 --tp2 -.5h": ["--tp2 = '-.5h': must be a whole number"],
    "plan m --system s --gpus 2.5": ["--gpus = '2.5': must be a whole number"],
    "plan m --system s --gpus 8 --price free": ["--price = 'free': must be a number"],
    "plan m --system s --gpus 8 --objective speed": [
        "--objective = 'speed': must be one of time, throughput, cost, memory"
    ],
    "plan m --system s --gpus 8 --zero 7": ["--zero = '7': must be one of 0, 1, 2, 3"],
    "plan m --system s --gpus 8 --tp 8 --tp 4": ["--tp: given more than once"],
    "plan m n o --system s --gpus 8": ["'n': not expected here", "'o': not expected here"],
    "plan m --system s --gpus 8 --wibble 3": ["--wibble: unknown option"],
    "plan m --system s --gpus 8 --lora-dropout 0.1 --gradient_accumulation_steps=2 --cost-centre x": [
        "--lora-dropout: unknown option; write --train lora:dropout",
        "--gradient_accumulation_steps: unknown option; write --global-batch N, of all micro-batches and "
        "replicas",
        "--cost-centre: unknown option",
    ],
    "plan m --system s --tensor-model-parallel-size x": [
        "--gpus: missing",
        "--tensor-model-parallel-size (--tp) = 'x': must be a whole number",
    ],
    "plan m --system s --gpus 8 --tp 8 --tensor-parallel-size 4": [
        "--tensor-parallel-size (--tp): given more than once"
    ],
    "plan m n --systm s --gpus 8 --set x --tp q --json -3h": [
        "--systm: unknown option; did you mean --system?",
        "--set: unknown option; did you mean --seq?",
        "--json = '-3h': takes no value",
        "--system: missing, such as --system h100",
        "--tp = 'q': must be a whole number",
        "'n': not expected here",
    ],
    "plan --gpus 8,16 --seq": [
        "--seq: its value is missing",
        "MODEL: missing",
        "--system: missing, such as --system h100",
        "--gpus = '8,16': must be a whole number; compare takes several",
    ],
    "check f --system s --set": ["--set: its value is missing"],
    "completion tcsh": ["SHELL = 'tcsh': must be one of bash, zsh, fish"],
    "pln": ["'pln': unknown command; did you mean plan?"],
    "wibble --json": ["'wibble': unknown command"],
    "search m --system s": ["'search': unknown command; did you mean plan?"],
    "models": ["'models': unknown command; did you mean catalog?"],
    "llama-3-8b --system h100": ["'llama-3-8b': unknown command; did you mean plan llama-3-8b?"],
    "plan m h100 --system s --gpus 8": ["'h100': not expected here"],
}


@pytest.mark.parametrize("command", WRONG)
def test_mistakes_are_described_in_words(command, run):
    subject = command.split()[0] if command.split()[0] in ("plan", "check", "completion") else "command line"
    problems = WRONG[command]
    code, _, err = run(command)
    lines = (
        [f"{subject}: {problems[0]}"]
        if len(problems) == 1
        else [f"{subject}: {len(problems)} problems", *(f"  {problem}" for problem in problems)]
    )
    page = "traincast --help" if subject == "command line" else f"traincast {subject} --help"
    assert (code, err.splitlines()) == (2, [f"traincast: {lines[0]}", *lines[1:], f"  see {page}"])


def test_rates_of_data_and_storage_are_refused_at_once(run):
    code, _, err = run(
        "estimate llama-3-8b --system dgx-h100 --tp 8 --input-rate 3 --storage-bandwidth 5 --price -1"
    )
    assert code == 2
    assert all(word in err for word in ("3 problems", "sequence/s", "storage bandwidth: '5'", "price"))


def test_advice_recommends_no_batch_where_none_fits_and_names_what_is_not_measured(run):
    code, out, _ = run("advise llama-3-70b --system dgx-h100 --dp 8 --global-batch 8 --why")
    assert code == 1
    assert "None of these fits at a global batch of 8." in out
    assert "Not measured" not in out  # all its sizes are multiples of 64
    _, out, _ = run(
        "advise gpt-1.3b --system dgx-a100 --tp 2 --dp 4 --global-batch 8 --assumptions calibrated --why"
    )
    assert "Not measured: what other sizes lose" in out
    sizes = out[out.index("Dimensions (") : out.index("Not measured:")]
    assert "alignment" in next(line for line in sizes.splitlines() if line.startswith("ffn"))


def test_training_on_sampled_answers_is_no_misspelt_dpo(run):
    said = run("plan llama-3-8b --system dgx-h100 --gpus 8 --train grpo").err
    assert "training 'grpo': not modelled, as sampling takes most of its time" in " ".join(said.split())
    assert "did you mean" not in said
