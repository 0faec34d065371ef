"""Search only machines near the front: a coarse grid, then ever closer neighbours of what is on the front."""

import math
from collections.abc import Sequence
from itertools import product
from typing import Final

import numpy as np

from traincast.core import Floats, Ints
from traincast.planner.designs.designs import Designs, Refinement
from traincast.planner.designs.machines import DesignQuestion, Machines, Runs, search_machines

COARSE_INTERVALS: Final = 3  # of each axis in the first grid, at most
NEAR: Final = 0.01  # share by which machines are behind the front whose neighbours are searched
CHECKED: Final = 200  # random machines searched at the end, to state the error
SEED: Final = 1


def find_designs(question: DesignQuestion, runs: Runs | None = None) -> Designs:
    """Search the machines of a question: all, or where there are many those near the front."""
    runs = runs or Runs()
    if not question.refined:
        asked = [(family, family.points()) for family in question.families]
        return Designs(question, search_machines(question, asked, runs), runs)
    return _Grid(question, runs).refine()


class _Grid:
    """Grids of machines of all families, and the rows of them that were searched."""

    def __init__(self, question: DesignQuestion, runs: Runs):
        self.question = question
        self.runs = runs
        self.shapes = [family.shape for family in question.families]
        first = [tuple(map(_first_stride, shape)) for shape in self.shapes]
        self.strides = first
        self.largest = max((max(of, default=1) for of in first), default=1)
        coarse = [
            [np.unique([*range(0, n, stride), n - 1]) for n, stride in zip(shape, strides, strict=True)]
            for shape, strides in zip(self.shapes, first, strict=True)
        ]
        self.rows: list[Ints] = [np.zeros(0, int)] * len(coarse)
        self.parts: list[Machines] = []
        self.search([list(map(tuple, product(*axes))) for axes in coarse])

    def search(self, wanted: Sequence[Sequence[tuple[int, ...]]]) -> int:
        """Search machines not searched before, by their places on the axes of each family; count them."""
        new = [
            np.setdiff1d([_flat(place, shape) for place in places], rows).astype(int)
            for places, shape, rows in zip(wanted, self.shapes, self.rows, strict=True)
        ]
        chosen = [number for number, rows in enumerate(new) if len(rows)]
        families = self.question.families
        asked = [(families[number], families[number].points(new[number])) for number in chosen]
        found = search_machines(self.question, asked, self.runs) if asked else []
        self.rows = [np.concatenate(pair) for pair in zip(self.rows, new, strict=True)]
        if not self.parts:
            self.parts = found
        for number, of in zip(chosen, found, strict=True):
            before = self.parts[number]
            if before is not of:
                points = families[number].points(self.rows[number])
                joined = before.found.concatenate(of.found)
                self.parts[number] = Machines(families[number], points, self.question, joined)
        return sum(map(len, new))

    def designs(self, refinement: Refinement | None = None) -> Designs:
        """Return what was searched so far."""
        return Designs(self.question, self.parts, self.runs, refinement)

    def refine(self) -> Designs:
        """Search neighbours of what is near the front, ever closer; random machines state the error."""
        stride = self.largest
        while True:
            designs = self.designs()
            if self.search(self._neighbours(_rows_near_front(designs), designs, stride)):
                continue
            if stride > 1:
                stride //= 2
            elif not self.search(self._all_neighbours(designs)):
                break
        return self._check_at_random(designs)

    def _places(self, designs: Designs, row: int) -> tuple[int, tuple[int, ...]]:
        """Return the family of a row, and its places on the axes."""
        number = int(designs.part[row])
        machine = int(designs.within[row]) // designs.parts[number].sizes
        places = np.unravel_index(self.rows[number][machine], self.shapes[number])
        return number, tuple(int(place) for place in places)

    def _neighbours(self, rows: Ints, designs: Designs, stride: int) -> list[list[tuple[int, ...]]]:
        """Return the machines next to rows along each axis, at a stride of the grids."""
        wanted: list[list[tuple[int, ...]]] = [[] for _ in self.shapes]
        for number, place in {self._places(designs, int(row)) for row in rows}:
            for axis, (n, first) in enumerate(zip(self.shapes[number], self.strides[number], strict=True)):
                for step in (-min(stride, first), min(stride, first)):
                    moved = min(max(place[axis] + step, 0), n - 1)
                    wanted[number].append((*place[:axis], moved, *place[axis + 1 :]))
        return wanted

    def _all_neighbours(self, designs: Designs) -> list[list[tuple[int, ...]]]:
        """Return every neighbour of the cheapest machine, those across corners as well."""
        wanted: list[list[tuple[int, ...]]] = [[] for _ in self.shapes]
        if designs.feasible.any():
            number, place = self._places(designs, designs.cheapest)
            ranges = zip(place, self.shapes[number], strict=True)
            wanted[number] = list(product(*(range(max(at - 1, 0), min(at + 2, n)) for at, n in ranges)))
        return wanted

    def _check_at_random(self, designs: Designs) -> Designs:
        """Search random machines as well, and say by how much they are ahead of the front."""
        counts = np.array([math.prod(shape) for shape in self.shapes])
        searched = sum(map(len, self.rows))
        left = [np.setdiff1d(np.arange(count), rows) for count, rows in zip(counts, self.rows, strict=True)]
        owner = np.repeat(np.arange(len(left)), [len(rows) for rows in left])
        drawn = np.random.default_rng(SEED).permutation(len(owner))[:CHECKED]
        picked = [np.concatenate(left)[drawn[owner[drawn] == number]] for number in range(len(left))]
        places = [
            [tuple(map(int, np.unravel_index(row, shape))) for row in rows]
            for rows, shape in zip(picked, self.shapes, strict=True)
        ]
        if not designs.feasible.any() or not self.search(places):
            return designs
        after = self.designs()
        fresh = np.concatenate(
            [
                np.arange(part.run_hours.shape[1]) >= before.run_hours.shape[1]
                for part, before in zip(after.parts, designs.parts, strict=True)
            ]
        )
        gaps = gaps_of(criteria(after)[:, fresh & after.feasible], criteria(designs)[:, designs.front])
        ahead = int(np.sum(gaps > 0))
        done = Refinement(int(counts.sum()), searched, len(drawn), ahead, float(gaps.max(initial=0.0)))
        return self.designs(done)


def criteria(designs: Designs) -> Floats:
    """Return time, cost and energy of every row."""
    return np.array([designs.hours, designs.cost, designs.energy])


def gaps_of(values: Floats, front: Floats) -> Floats:
    """Return the share by which points (second axis) are ahead of a front in some criterion, at least 0."""
    ratios = (front[:, :, None] / values[:, None, :]).max(axis=0)
    return np.asarray(np.maximum(ratios.min(axis=0, initial=np.inf) - 1, 0.0))


def _rows_near_front(designs: Designs) -> Ints:
    """Return the rows near the front; the nearest to the limits where none is within."""
    if not designs.feasible.any():
        return np.array([designs.nearest])
    values = criteria(designs)
    rows = np.flatnonzero(designs.feasible)
    front = values[:, designs.front] * (1 + NEAR)
    beaten = [bool((front <= values[:, [row]]).all(axis=0).any()) for row in rows]
    return np.asarray(rows[~np.array(beaten)])


def _first_stride(n: int) -> int:
    """Return the power of two that divides an axis into some intervals."""
    return 1 << max(math.ceil(math.log2(max((n - 1) / COARSE_INTERVALS, 1))), 0)


def _flat(place: Sequence[int], shape: Sequence[int]) -> int:
    return int(np.ravel_multi_index(tuple(place), tuple(shape))) if shape else 0
