"""What is asked of the layouts of a search."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from traincast.core import Floats, Ints
from traincast.planner.space.fits_in_memory import Figure
from traincast.planner.space.least_times import LeastTimes

LayoutQuestion = Callable[[LeastTimes], Ints]
Answer = tuple[LeastTimes, Ints]


class Layouts(ABC):
    """Layouts of all batches of a search on one number of GPUs."""

    @property
    @abstractmethod
    def feasible(self) -> int:
        """Number of candidates that fit."""

    @property
    @abstractmethod
    def times(self) -> LeastTimes:
        """Times known so far, of the layouts evaluated so far."""

    @abstractmethod
    def answer(self, question: LayoutQuestion) -> Answer:
        """Return the layouts that answer a question, and the times whose rows they are."""

    def find_together(self, *figures: Figure, front: bool = False) -> None:  # noqa: B027
        """Prepare for `best_of` these figures, and for `front` if it is wanted, where that spares work."""

    @abstractmethod
    def best_of(self, *figures: Figure) -> tuple[LeastTimes, list[dict[int, int]]]:
        """Return the row of the best layout with each value of figures, and the times whose rows they are."""

    @abstractmethod
    def front(self) -> Answer:
        """Return the layouts that no other beats in both time and memory, fastest first."""

    @abstractmethod
    def sample(self, most: int) -> LeastTimes:
        """Return the times of all layouts that fit, or of a sample of about `most` with the fastest."""

    @abstractmethod
    def least_memory(self, figure: Figure) -> dict[int, float]:
        """Return the least memory of the layouts with each value of a figure, fitting or not [byte]."""

    @abstractmethod
    def leanest(self) -> Floats:
        """Return the least memory of each batch, up to rounding [byte]."""

    @abstractmethod
    def excluded_by_memory(self, batches: Sequence[int], limit: float) -> dict[str, Answer]:
        """Return what memory excludes: the leanest, and the leanest and the fastest below a time [s]."""
