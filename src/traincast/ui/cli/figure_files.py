"""Files of figures that a command draws."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from traincast.ui.cli.app import output_option

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_FIGURES = "Draw figures into this folder as well, as --format says."
FiguresFolder = Annotated[Path | None, output_option(_FIGURES, metavar="FOLDER")]
FigureFormat = Annotated[Literal["svg", "pdf", "png"], output_option("Format of figures.", name="--format")]


def save_figures(
    figures: "Iterable[tuple[str, Figure]]",
    folder: Path,
    form: str,
    report: Callable[[int], None] = lambda done: None,
) -> list[Path]:
    """Draw figures into a folder, in a format; `report` is called with the number drawn."""
    from traincast.ui.figures import save

    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for stem, figure in figures:
        drawn.append(folder / f"{stem}.{form}")
        save(figure, drawn[-1])
        report(len(drawn))
    return drawn
