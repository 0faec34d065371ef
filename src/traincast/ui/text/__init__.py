"""Results as text for terminals; each module is imported when it is first used."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from traincast.ui.text import (
        accuracy,
        analysis,
        calibration,
        comparison,
        designs,
        launch,
        markdown,
        plans,
        tables,
        tuning,
    )

__all__ = [
    "accuracy",
    "analysis",
    "calibration",
    "comparison",
    "designs",
    "headline",
    "launch",
    "markdown",
    "plans",
    "tables",
    "tuning",
]
__getattr__, _, _ = lazy_loader.attach(__name__, __all__)
