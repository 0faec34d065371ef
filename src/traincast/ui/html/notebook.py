"""Registration of notebook cards with IPython when traincast is imported in a notebook."""

from typing import Any, Final

RESULT_MODULES: Final = {
    "Advice": "traincast.planner.answers.advice",
    "Calibration": "traincast.accuracy.fit.calibration",
    "Estimate": "traincast.step.estimates",
    "Found": "traincast.planner.search_result",
    "Limits": "traincast.analysis.training_limits",
    "Metrics": "traincast.step.run_metrics",
    "Report": "traincast.accuracy.validation",
    "Results": "traincast.planner.studies.results",
    "Scaling": "traincast.analysis.zero_scaling",
}  # class of a result -> its module, by name so that nothing is imported before it is shown


def register_in_notebook() -> None:
    """Register the cards with the running IPython, if any."""
    from IPython import get_ipython

    shell = get_ipython()
    if shell is not None:
        register(shell.display_formatter.formatters["text/html"])


def register(formatter: Any) -> None:
    """Let IPython's formatter of HTML (an `HTMLFormatter`) show results as cards."""
    for name, module in RESULT_MODULES.items():
        formatter.for_type_by_name(module, name, _card)


def _card(result: object) -> str | None:
    """Return the card of a result; None where its text is shown instead, as without Jinja2."""
    try:
        from traincast.ui.html.notebook_cards import card
    except ImportError:
        return None
    return card(result)
