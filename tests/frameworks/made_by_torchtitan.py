"""What torchtitan makes of written modules, and the sizes of its flavours; runs in torchtitan's interpreter.

A JSON object on standard input has the `paths` of modules and the `flavours`, pairs of a model and a flavour;
the answer has the same keys, with one item for each: its sizes, or None where there is no such model.
"""

import json
import runpy
import sys
from importlib import import_module


def configuration(path):
    """Make the configuration of a module: what torchtitan's classes refuse is refused here."""
    made = next(value for name, value in runpy.run_path(path).items() if name.endswith("_gpus"))()
    degrees = made.parallelism
    model = made.model_spec.model
    return {
        "tp": degrees.tensor_parallel_degree,
        "pp": degrees.pipeline_parallel_degree,
        "ep": degrees.expert_parallel_degree,
        "layers": len(model.layers),
        "hidden": model.dim,
        "vocab": model.vocab_size,
    }


def flavour(name, flavour):
    """Return the sizes of a flavour; None without such a model."""
    try:
        module = import_module(f"torchtitan.models.{name}")
    except ModuleNotFoundError:
        return None
    model = module.model_registry(flavour).model
    return {"layers": len(model.layers), "hidden": model.dim}


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    print(
        json.dumps(
            {
                "paths": [configuration(path) for path in asked["paths"]],
                "flavours": [flavour(*names) for names in asked["flavours"]],
            }
        )
    )
