"""Write what Megatron-LM's own parser reads of random command lines, which the reader is compared with.

    python tools/launch_oracle.py [DRAWS]

Run by the Python that the frameworks are installed in. Lines that Megatron-LM refuses are left out.
"""

import contextlib
import io
import json
import os
import random
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests/launch/oracle/megatron.json"
DRAWS = 25
FIELDS = (
    *("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"),
    *("data_parallel_size", "micro_batch_size", "global_batch_size", "seq_length", "sequence_parallel"),
    *("recompute_granularity", "use_distributed_optimizer", "overlap_grad_reduce", "bf16"),
    *("num_layers", "hidden_size", "num_attention_heads", "ffn_hidden_size"),
)


def draw(chance: random.Random) -> tuple[int, list[str]]:
    """Return a number of ranks, and the arguments of a dense model and its plan."""
    layers = chance.choice((16, 32))
    numbers = {
        "num-layers": layers,
        "hidden-size": 4096,
        "num-attention-heads": 32,
        "max-position-embeddings": 8192,
        "seq-length": chance.choice((2048, 4096, 8192)),
        "tensor-model-parallel-size": chance.choice((1, 2, 4, 8)),
        "pipeline-model-parallel-size": chance.choice((1, 2, 4)),
        "context-parallel-size": chance.choice((1, 1, 2)),
        "micro-batch-size": chance.choice((1, 2, 4)),
        "train-iters": 100,
        "lr": 0.0001,
        "vocab-size": 32000,
    }
    if chance.random() < 0.8:
        numbers["global-batch-size"] = chance.choice((64, 128, 256))
    if chance.random() < 0.5:
        numbers["ffn-hidden-size"] = 14336
    words = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    switches = ("bf16", "sequence-parallel", "use-distributed-optimizer", "swiglu", "overlap-grad-reduce")
    words += [f"--{switch}" for switch in switches if chance.random() < 0.6]
    words += ["--tokenizer-type", "NullTokenizer"]
    words += chance.choice(
        (
            [],
            ["--recompute-activations"],
            ["--recompute-granularity", "selective"],
            [
                "--recompute-granularity",
                "full",
                "--recompute-method",
                "uniform",
                "--recompute-num-layers",
                "1",
            ],
        )
    )
    return chance.choice((16, 32, 64)), words


def main() -> None:
    """Write the readings."""
    sys.path[:0] = [str(Path(sys.prefix) / "parsers/megatron"), str(ROOT / "tests/frameworks")]
    from accepts import _megatron_arguments

    arguments = _megatron_arguments()
    chance = random.Random(44)
    cases = []
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS):
        gpus, words = draw(chance)
        os.environ |= {"WORLD_SIZE": str(gpus), "RANK": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        before = sys.argv
        sys.argv = ["pretrain_gpt.py", *words]
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                args = arguments.validate_args(arguments.parse_args(), {})
        except (AssertionError, ValueError, SystemExit):
            continue
        finally:
            sys.argv = before
        reading = {name: getattr(args, name) for name in FIELDS}
        cases.append({"gpus": gpus, "words": " ".join(words), "reading": reading})
    rows = ",\n".join(json.dumps(case) for case in cases)
    FILE.write_text(f"[\n{rows}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
