"""Answers that ``plan --json`` and ``estimate --json`` wrote, read back to be compared."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from traincast.catalog import Stack, load_model, load_system, resolve
from traincast.core import Assumptions, InputError, Plan
from traincast.model import Model
from traincast.step import Estimate, Job, estimate

MOST_BYTES: Final = 1 << 26  # of a file: answers have at most some megabytes
WRITTEN_BY: Final = "is no answer that `traincast plan` or `traincast estimate` wrote with --json"
MAX_ERROR: Final = 1e-6  # of a step time that is computed again, as a share
SOFTWARE: Final[Mapping[str, Any]] = {"unsaid": (), "given": {}}  # keys that older files lack


@dataclass(frozen=True)
class SavedAnswer:
    """The recommended plan of a saved search, or a saved estimate."""

    content: Mapping[str, Any]
    job: Job
    framework: str | None
    est: Estimate | None  # the same estimate again; None where it has other inputs or is of another version

    def figures(self) -> dict[str, Any]:
        """Return what the file says of the plan, by the fields of `Compared` without label and name."""
        found = _estimate_of(self.content)
        metrics = found.get("metrics") or self.content.get("metrics") or {}
        fits = bool(found.get("fits"))
        nearest = "" if fits else "nothing fits; the file has the nearest miss"
        seconds = found.get("step_seconds") if fits else None
        parts = found.get("breakdown_seconds") or {}
        shares = {name: value / seconds for name, value in parts.items()} if seconds else {}
        rate = found.get("tokens_per_second_per_gpu")
        hours = metrics.get("gpu_hours")
        cost = metrics.get("cost")
        price = cost / hours / 3600 * 1e6 / rate if cost is not None and hours and rate else None
        described = self.content.get("recommended") or {}
        return {
            "job": self.job,
            "framework": self.framework,
            "fits": fits,
            "step_seconds": seconds,
            "step_seconds_low": found.get("step_seconds_low") if fits else None,
            "step_seconds_high": found.get("step_seconds_high") if fits else None,
            "memory_bytes": found.get("memory_bytes"),
            "capacity_bytes": None,
            "fits_probability": found.get("fits_probability"),
            "tokens_per_second_per_gpu": rate if fits else None,
            "mfu": (metrics.get("mfu") or {}).get("megatron") if fits else None,
            "days": metrics.get("days"),
            "cost": cost,
            "cost_per_million_tokens": price,
            "shares": dict(sorted(shares.items(), key=lambda item: -item[1])),
            "plan": found.get("plan"),
            "in_words": nearest or described.get("in_words") or _knobs(found.get("plan") or {}),
        }


def is_saved_answer(file: str) -> bool:
    """Return whether a word names a file that looks like an answer of ``--json``."""
    path = Path(file)
    if path.suffix != ".json" or not path.is_file():
        return False
    try:
        return _is_answer(_content(path))
    except InputError:
        return False


def read_saved_answer(path: Path) -> SavedAnswer:
    """Read an answer of ``plan --json`` or ``estimate --json``.

    Where its model and system are of the catalogue it is estimated again, so that the error of a difference
    is known as of two plans just searched.

    Raises
    ------
    InputError
        If the file is no such answer.
    """
    content = _content(path)
    if not _is_answer(content):
        raise InputError(str(path), [WRITTEN_BY])
    try:
        job = job_of(content)
    except KeyError as error:
        raise InputError(str(path), [f"{WRITTEN_BY}: {error.args[0]} is missing"]) from None
    framework = content.get("framework")
    return SavedAnswer(content, job, framework, _again(content, job))


def job_of(content: Mapping[str, Any]) -> Job:
    """Return the job of an answer; raise `KeyError` where a key is missing.

    Older answers do not say what they leave open of the software.
    """
    software: dict[str, Any] = {name: content.get(name, empty) for name, empty in SOFTWARE.items()}
    stated = {name: content[name] for name in Job.__dataclass_fields__ if name not in software}
    return Job(**stated, **software)


def possible_software(content: Mapping[str, object]) -> list[Assumptions]:
    """Return the assumptions that an answer may have been made with: one where the file says which.

    An older file does not say what its question left open: the stack's own, all software, or its releases.

    Raises `InputError` if the catalogue has none of that name, `KeyError` where a key of the job is missing.
    """
    job = job_of(content)
    stated = job.software()
    if all(name in content for name in SOFTWARE):
        return [stated]
    left_open = (resolve(job.assumptions).unsaid, Stack.ANY, Stack(stated.name).releases)
    return [replace(stated, unsaid=unsaid) for unsaid in left_open]


def _content(path: Path) -> Any:
    """Return the content of a JSON file."""
    if not path.is_file():
        raise InputError(str(path), ["no such file"])
    if path.stat().st_size > MOST_BYTES:
        raise InputError(str(path), [WRITTEN_BY])
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise InputError(str(path), ["is nested too deeply"]) from None
    except (OSError, ValueError) as error:
        raise InputError(str(path), [f"{WRITTEN_BY}: {error}"]) from None


def _is_answer(content: object) -> bool:
    """Return whether content has the parts of an answer."""
    if not isinstance(content, dict) or not {"model", "system", "gpus", "version"} <= content.keys():
        return False
    found = content.get("estimate")
    plans = content.get("plans")
    return isinstance(found, dict) or (isinstance(plans, list) and all(isinstance(p, dict) for p in plans))


def _estimate_of(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the estimate of the file: that of the first plan, of the one plan, or of the nearest miss."""
    if "estimate" in content:
        found: Mapping[str, object] = content["estimate"]
        return found
    if content["plans"]:
        first: Mapping[str, Any] = content["plans"][0]
        return first
    miss: Mapping[str, object] = (content.get("explanation") or {}).get("nearest_miss") or {}
    return miss


def _again(content: Mapping[str, object], job: Job) -> Estimate | None:
    """Return the same estimate as a file has; None where it cannot be made of the file alone."""
    found = _estimate_of(content)
    if job.trained or job.images or not found:
        return None
    try:
        model: Model = load_model(job.model, seq=job.seq)
        system = load_system(job.system)
        plan = Plan(**found["plan"])
        for assumed in possible_software(content):
            est = estimate(model, system, plan, gbs=job.global_batch, assumptions=assumed)
            if _has_figures(est, found):
                return est
    except (InputError, KeyError, TypeError):
        pass
    return None


def _has_figures(est: Estimate, found: Mapping[str, object]) -> bool:
    """Return whether an estimate has the figures of a file."""
    same = [
        abs(getattr(est, name) / found[name] - 1) < MAX_ERROR
        for name in ("step_seconds", "memory_bytes", "step_seconds_high", "fits_probability")
        if found.get(name) and getattr(est, name)
    ]
    return bool(same) and all(same)


def _knobs(plan: Mapping[str, Any]) -> str:
    return str(Plan(**plan)) if plan else ""
