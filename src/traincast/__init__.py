"""How long a training step of a large transformer takes, whether it fits, what binds it, and which parallel plan is best.

>>> import traincast as tc
>>> found = tc.search("gpt3-1t", "h200-nvs8", gpus=2048, gbs=4096)
>>> print(found.best[0])
summa tp=4 pp=16 dp=32 panels=32 fast_tp=4 fast_dp=2
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from traincast.core.version import __version__ as __version__

if "IPython" in sys.modules:
    from traincast.ui.html.notebook import register_in_notebook

    register_in_notebook()

if TYPE_CHECKING:
    from traincast.accuracy.fit.calibrate import Calibration, calibrate
    from traincast.accuracy.measure.measure import MeasuredMachine, measure
    from traincast.accuracy.validate import validate
    from traincast.analysis.advise import Advice, advise
    from traincast.analysis.paper_results import reproduce
    from traincast.analysis.trace import Trace, trace
    from traincast.analysis.training_limits import Limits, limits
    from traincast.analysis.zero_scaling import scaling
    from traincast.catalog.load import load_model, load_system, model_names, system_names
    from traincast.core.assumptions import Assumptions
    from traincast.core.errors import InputError, NothingFits, TraincastError
    from traincast.core.model import Model
    from traincast.core.plan import Plan, Plans
    from traincast.core.system import Accelerator, System, Tier
    from traincast.launch.check import Checked, check
    from traincast.launch.export import Launch, export
    from traincast.planner.search import Found, search, search_each
    from traincast.planner.study.executors import study
    from traincast.planner.study.results import Results
    from traincast.step.estimate import Estimate, Estimates, estimate
    from traincast.step.metrics import Metrics, metrics
    from traincast.step.model_flops import hardware_flops_per_token, model_flops_per_token
    from traincast.ui.html.write import write_html

__all__ = [
    "Accelerator",
    "Advice",
    "Assumptions",
    "Calibration",
    "Checked",
    "Estimate",
    "Estimates",
    "Found",
    "InputError",
    "Launch",
    "Limits",
    "MeasuredMachine",
    "Metrics",
    "Model",
    "NothingFits",
    "Plan",
    "Plans",
    "Results",
    "System",
    "Tier",
    "Trace",
    "TraincastError",
    "advise",
    "calibrate",
    "check",
    "estimate",
    "export",
    "hardware_flops_per_token",
    "limits",
    "load_model",
    "load_system",
    "measure",
    "metrics",
    "model_flops_per_token",
    "model_names",
    "reproduce",
    "scaling",
    "search",
    "search_each",
    "study",
    "system_names",
    "trace",
    "validate",
    "write_html",
]


_HOME = {
    "core.assumptions": ["Assumptions"],
    "accuracy.fit.calibrate": ["Calibration", "calibrate"],
    "core.errors": ["InputError", "NothingFits", "TraincastError"],
    "step.estimate": ["Estimate", "Estimates", "estimate"],
    "step.model_flops": ["hardware_flops_per_token", "model_flops_per_token"],
    "core.system": ["Accelerator", "System", "Tier"],
    "launch.check": ["Checked", "check"],
    "launch.export": ["Launch", "export"],
    "analysis.training_limits": ["Limits", "limits"],
    "catalog.load": ["load_model", "load_system", "model_names", "system_names"],
    "accuracy.measure.measure": ["MeasuredMachine", "measure"],
    "step.metrics": ["Metrics", "metrics"],
    "core.model": ["Model"],
    "core.plan": ["Plan", "Plans"],
    "planner.study.executors": ["study"],
    "analysis.paper_results": ["reproduce"],
    "ui.html.write": ["write_html"],
    "planner.study.results": ["Results"],
    "analysis.zero_scaling": ["scaling"],
    "accuracy.validate": ["validate"],
    "planner.search": ["Found", "search", "search_each"],
    "analysis.advise": ["Advice", "advise"],
    "analysis.trace": ["Trace", "trace"],
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is asked for: importing the package costs nothing."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'traincast' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"traincast.{_MODULE_OF[name]}"), name)
    except ImportError as error:
        from traincast.core.errors import MissingExtra

        raise MissingExtra.of(error) or error from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
