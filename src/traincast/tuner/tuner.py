"""Find the best plan by trials on the user's machine: ask for one, tell its result, stop when sure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np

from traincast.accuracy import Run
from traincast.catalog import Stack, as_model, as_system, read_given
from traincast.core import (
    INLINE,
    Assumptions,
    Doc,
    ErrorCollector,
    InputError,
    Plan,
    Result,
    System,
    count_of,
    probability_text,
    seconds,
    unknown_name_error,
    whole_number_problems,
)
from traincast.launch import FORMATS, Launch
from traincast.model import Model
from traincast.planner import Framework, Question
from traincast.planner import framework as framework_named
from traincast.step import NORMAL_90_PERCENT, Job, check_assumptions, check_gbs, check_size, usual_assumptions
from traincast.tuner.belief import STOP_PROBABILITY, TRIAL_GAIN, Belief, Outlook
from traincast.tuner.candidates import Candidates, of_runs, of_search
from traincast.tuner.journal import Journal
from traincast.tuner.launches import TRIAL_STEPS, Exported, Launcher

if TYPE_CHECKING:
    from traincast.accuracy import Calibration

TRIALS: Final = 8  # at most, by default
VERIFIED: Final = 32  # likeliest candidates whose launches are written before probabilities are stated
Outcome = Literal["running", "time", "oom", "failed"]


class Trial(Result):
    """A plan to run, and its result."""

    number: Annotated[int, Doc("number of the trial, from 1")]
    plan: Annotated[Plan, Doc("every knob and choice of the plan by name")]
    predicted_seconds: Annotated[float, Doc("predicted time of a step, before any trial", "s")]
    expected_seconds: Annotated[float, Doc("expected time when the trial began", "s")]
    low: Annotated[float, Doc("lower end of its 90 % interval", "s")]
    high: Annotated[float, Doc("upper end of its 90 % interval", "s")]
    fits_probability: Annotated[float, Doc("probability that it fits in memory")]
    why: Annotated[str, Doc("why this plan")]
    outcome: Annotated[Outcome, Doc("running, time (measured), oom (out of memory) or failed")] = "running"
    seconds: Annotated[float | None, Doc("measured time of a step", "s")] = None
    memory_bytes: Annotated[float | None, Doc("measured memory of the fullest rank", "byte")] = None
    failed: Annotated[str | None, Doc("what failed")] = None
    took: Annotated[float, Doc("how long the trial took", "s")] = 0.0
    launch: Launch | None = None

    @property
    def text(self) -> str:
        """Result in words."""
        if self.outcome == "time" and self.seconds is not None:
            return f"{seconds(self.seconds)} a step"
        return {"running": "under way", "oom": "out of memory", "failed": f"failed: {self.failed}"}[
            self.outcome
        ]


class Best(Result):
    """The fastest plan that was measured."""

    trial: Annotated[int, Doc("number of its trial")]
    plan: Annotated[Plan, Doc("every knob and choice of the plan by name")]
    seconds: Annotated[float, Doc("measured time of a step", "s")]


class Remaining(Result):
    """What further trials would bring."""

    within: Annotated[float, Doc("probability that no other candidate is faster by more than 1%")]
    gain: Annotated[float | None, Doc("expected remaining gain, relative to the best; null before any")]


class Learnt(Result):
    """What trials show of the machine."""

    factor: Annotated[float, Doc("measured over predicted time, of all plans")]
    low: Annotated[float, Doc("lower end of its 90 % interval")]
    high: Annotated[float, Doc("upper end of its 90 % interval")]
    noise: Annotated[float, Doc("relative noise of a trial, by the spread of its steps and by repeats")]
    repeats: Annotated[int, Doc("trials that repeated another")]


class TuneReport(Result, kw_only=True):
    """The best plan that was found, how sure that is, and what was learnt."""

    job: Annotated[Job, INLINE]
    launched: Annotated[str | None, Doc("format of the launches")]
    candidates: Annotated[int, Doc("plans that may fit and may be the fastest")]
    trials: Annotated[list[Trial], Doc("every trial")]
    best: Annotated[Best | None, Doc("the fastest plan measured; null before any")]
    remaining: Annotated[Remaining, Doc("what further trials would bring")]
    stopped: Annotated[str | None, Doc("why no further trial begins; null while one may")]
    learnt: Annotated[Learnt | None, Doc("what was learnt of the machine; null before any time")]
    first_seconds: Annotated[float | None, Doc("measured time of the plan predicted to be the fastest", "s")]


class Tuner:
    """Tuner of a job's plan: `ask` for a trial, `tell` its result, until `stopped`.

    Several trials can be under way at once. With a journal nothing is lost by a crash: the same
    call continues it.

    Parameters
    ----------
    model : str, Path or Model
        The transformer, or its name or file as for `load_model`.
    system : str, Path or System
        The machine, or its name or file; a name or a file can be recalibrated.
    gpus : int
        GPUs in the job.
    gbs : int, optional
        Global batch [sequences]; the model's own if left out, or else one of about 4M tokens.
    framework : str or Framework, optional
        Whose plans are tried, as for `search`.
    assumptions, given, locks
        As for `search`.
    plans : sequence of Plan, optional
        Candidates, in place of those of a search.
    to : str or Launcher, optional
        Format of the launches, one of `traincast.launch.formats.FORMATS`; that of the framework's name, if
        left out and there is one. Plans that it cannot express in full are no candidates.
    trials : int
        Trials at most.
    budget : float, optional
        Time after which no further trial begins, the sum of what trials took [s].
    steps : int
        Steps of a launch.
    journal : str or Path, optional
        File of the journal.

    Raises
    ------
    InputError
        If an argument is invalid, all mistakes at once; or if the journal is of another question.
    NothingFits
        If no plan fits.
    """

    def __init__(
        self,
        model: str | Path | Model,
        system: str | Path | System,
        gpus: int,
        *,
        gbs: int | None = None,
        framework: str | Framework | None = None,
        assumptions: str | Assumptions | None = None,
        given: Mapping[str, str] | Sequence[str] | None = None,
        locks: Mapping[str, object] | None = None,
        plans: Sequence[Plan] | None = None,
        to: str | Launcher | None = None,
        trials: int = TRIALS,
        budget: float | None = None,
        steps: int = TRIAL_STEPS,
        journal: str | Path | None = None,
    ):
        errors = ErrorCollector("tune")
        transformer = errors.catch(as_model, model)
        machine = errors.catch(as_system, system)
        batch = errors.catch(check_gbs, gbs, transformer)
        space = None if framework is None else errors.catch(framework_named, framework)
        usual = usual_assumptions(transformer, machine)
        if space is not None and transformer is not None:
            usual = space.usual_assumptions(transformer, machine)
        unsaid = Stack.ANY if space is None else Stack(usual).releases
        facts = errors.catch(read_given, given) or {}
        assumed = errors.catch(check_assumptions, assumptions, usual, unsaid, facts)
        problems = whole_number_problems("gpus", gpus) + whole_number_problems("trials", trials)
        problems += whole_number_problems("steps", steps)
        if budget is not None and not 0 < budget < float("inf"):
            problems.append(f"budget = {budget!r}: must be a number of seconds above 0")
        if isinstance(to, str) and to not in FORMATS:
            problems.append(str(unknown_name_error("format", to, FORMATS)))
        errors.add(problems)
        if not problems:
            errors.catch(check_size, machine, gpus)
        self.model = errors.require(transformer)
        self.system = errors.require(machine)
        self.assumptions = errors.require(assumed)
        self.gbs = errors.require(batch)
        self.gpus = gpus
        self.most = trials
        self.budget = budget
        self.base = None if isinstance(system, System) else system
        question = Question(
            model=self.model,
            system=self.system,
            gpus=(gpus,),
            gbs=self.gbs,
            framework=framework,
            assumptions=assumptions,
            locks=locks,
            given=facts,
        )
        self.candidates: Candidates = (
            of_search(question) if plans is None else of_runs([self._run(plan) for plan in plans])
        )
        if to is None and space is not None and space.name in FORMATS:
            to = space.name
        name = self.assumptions.name
        self.launcher: Launcher | None = (
            Exported(to, self.model, self.system, self.gbs, name, steps) if isinstance(to, str) else to
        )
        self.belief = Belief(self.candidates.prior)
        self.trials = list[Trial]()
        self._verified = set[int]()
        self._sure = False
        self._rows = list[int]()
        self.journal = Journal(None if journal is None else Path(journal), self._question(locks))
        for event in tuple(self.journal.events):
            self._apply(event)

    def _question(self, locks: Mapping[str, object] | None) -> dict[str, Any]:
        """Return what a journal is of."""
        job = {"model": self.model.name, "system": self.system.name, "gpus": self.gpus, "gbs": self.gbs}
        content = repr((self.model, self.system, sorted((locks or {}).items(), key=str)))
        return job | {
            "assumptions": self.assumptions.name,
            "launched": self.launcher and self.launcher.name,
            "content": sha256(content.encode()).hexdigest()[:16],
        }

    @property
    def job(self) -> Job:
        """Model, system, GPUs, batch and assumptions."""
        return Job.from_answer(self, self.gpus)

    @property
    def running(self) -> list[Trial]:
        """Trials without a result."""
        return [trial for trial in self.trials if trial.outcome == "running"]

    @property
    def took(self) -> float:
        """How long all trials took [s]."""
        return sum(trial.took for trial in self.trials)

    @property
    def stopped(self) -> str | None:
        """Why no further trial begins; None while one may."""
        within = self.belief.outlook.within
        # Draws near the threshold do not start it again
        self._sure = self._sure or within >= STOP_PROBABILITY
        if self._sure:
            probability = probability_text(max(within, STOP_PROBABILITY))
            return f"the best is within {TRIAL_GAIN:.0%} of every candidate with {probability}"
        if len(self.trials) >= self.most:
            return f"the limit of {count_of(self.most, 'trial')} is reached"
        if self.budget is not None and self.took >= self.budget:
            return f"trials took {seconds(self.took)}, and the budget is {seconds(self.budget)}"
        if self.belief.excluded.all():
            return "no candidate is left"
        return None

    def ask(self) -> Trial | None:
        """Return the next trial: a plan, its launch, and why; None where it is `stopped`.

        `Belief.choose` says which. None as well where all others are under way.
        """
        while self.stopped is None:
            if (row := self.belief.choose()) is None:
                return None
            if (launch := self._launch(row)) is None and self.launcher is not None:
                continue
            belief = self.belief
            prior = self.candidates.prior
            expected = belief.posterior.mean[row]
            deviation = belief.posterior.deviation[row]
            ends = np.exp(expected + NORMAL_90_PERCENT * deviation * np.array([-1, 0, 1])).tolist()
            trial = Trial(
                number=len(self.trials) + 1,
                plan=self.candidates.row(row),
                predicted_seconds=float(prior.seconds[row]),
                low=ends[0],
                expected_seconds=ends[1],
                high=ends[2],
                fits_probability=float(belief.fits[row]),
                why=self._why(row),
                launch=launch,
            )
            self._note_asked(trial, row)
            self._note(trial)
            return trial
        return None

    def _why(self, row: int) -> str:
        """Return why a candidate is tried next."""
        best = self.belief.best
        if best is None:
            fit = probability_text(self.belief.fits[row])
            return f"predicted to be the fastest of those that are likely to fit ({fit})"
        if row == best:
            deviation = self.belief.posterior.deviation[row]
            return f"measured again: the best so far, whose time is known to {deviation:.1%} only"
        chance = np.exp(self.belief.log_gain_probability()[row])
        number = self._trial_of(best).number
        why = f"{chance:.0%} likely to be more than {TRIAL_GAIN:.0%} faster than trial {number}"
        return f"measured again: {why}" if row in self.belief.times else why

    def _launch(self, row: int) -> Launch | None:
        """Return the launch of a candidate; None, and the candidate is excluded, where it has none."""
        launch = None if self.launcher is None else self.launcher.write(self.candidates.row(row))
        if launch is None and self.launcher is not None:
            self.belief.exclude(row)
        self._verified.add(row)
        return launch

    def verify(self) -> None:
        """Exclude the likeliest candidates whose plan the launches cannot express."""
        while self.launcher is not None and self.belief.best is not None:
            likely = np.argsort(-self.belief.log_gain_probability(), kind="stable")[:VERIFIED].tolist()
            new = [row for row in likely if row not in self._verified and not self.belief.excluded[row]]
            if all(self._launch(row) is not None for row in new):
                return

    def _trial_of(self, row: int) -> Trial:
        return self.trials[self._rows.index(row)]

    def _note_asked(self, trial: Trial, row: int) -> None:
        self.trials.append(trial)
        self._rows.append(row)
        self._wait()

    def _note(self, trial: Trial) -> None:
        """Write a trial that begins into the journal."""
        fields = {name: value for name, value in trial.to_dict().items() if name in _ASKED}
        self.journal.add(asked=fields | {"plan": trial.plan.knobs()})

    def _wait(self) -> None:
        """Tell the belief which trials are under way."""
        under_way = [
            row
            for row, trial in zip(self._rows, self.trials, strict=True)
            if trial.outcome == "running" and not self.belief.excluded[row]
        ]
        self.belief.wait(under_way)

    def tell(
        self,
        what: Trial | Plan | int,
        seconds: float | None = None,
        *,
        oom: bool = False,
        failed: str | None = None,
        memory: float | None = None,
        error: float = 0.0,
        took: float = 0.0,
    ) -> Trial:
        """Take the result of a trial, or of a plan that no trial began with.

        Parameters
        ----------
        what : Trial, Plan or int
            The trial, its number, or a candidate.
        seconds : float, optional
            Measured time of a step [s].
        oom : bool
            Whether it ran out of memory.
        failed : str, optional
            What else went wrong.
        memory : float, optional
            Measured memory of the fullest rank [byte].
        error : float
            Standard error of the time within the trial, relative to it: at most that of its steps.
        took : float
            How long the trial took [s], which counts against the budget.

        Raises
        ------
        InputError
            If no result or several are given, a number is not possible, or the trial has a result.
        """
        problems = []
        if (seconds is not None) + oom + (failed is not None) != 1:
            problems.append("give one of seconds, oom=True and failed='why'")
        least, most = Run.STEP_SECONDS
        if seconds is not None and not least <= seconds <= most:
            allowed = f"{least:g} to {most:,.0f} s"
            problems.append(f"seconds = {seconds!r}: must be a step of {allowed}")
        if memory is not None and not 0 < memory < float("inf"):
            problems.append(f"memory = {memory!r}: must be a number above 0")
        if not 0 <= error < 1:
            problems.append(f"error = {error!r}: must be a share from 0, below 1")
        if problems:
            raise InputError("tell", problems)
        trial = self._find_trial(what)
        if trial.outcome != "running":
            raise InputError("tell", [f"trial {trial.number}: has a result already ({trial.text})"])
        event = {"told": trial.number, "seconds": seconds, "oom": oom, "failed": failed}
        event |= {"memory": memory, "error": error, "took": took}
        self._told(event)
        self.journal.add(**event)
        self.verify()
        return self.trials[trial.number - 1]

    def _find_trial(self, what: Trial | Plan | int) -> Trial:
        """Return the trial that is meant; a plan that is not under way becomes one."""
        if isinstance(what, Trial):
            what = what.number
        if isinstance(what, int):
            if not 1 <= what <= len(self.trials):
                raise InputError("tell", [f"trial {what}: is none of the {len(self.trials)} so far"])
            return self.trials[what - 1]
        row = self.candidates.find(what)
        for trial, of_trial in zip(self.trials, self._rows, strict=True):
            if of_trial == row and trial.outcome == "running":
                return trial
        predicted = float(self.candidates.prior.seconds[row])
        figures = (predicted, predicted, predicted, predicted, float(self.belief.fits[row]))
        trial = Trial(len(self.trials) + 1, what, *figures, "its result was given without a trial")
        self._note_asked(trial, row)
        self._note(trial)
        return trial

    def _told(self, event: Mapping[str, Any]) -> None:
        index = int(event["told"]) - 1
        row = self._rows[index]
        belief = self.belief
        memory = event["memory"]
        outcome: Outcome = "time"
        if event["oom"]:
            outcome = "oom"
        elif event["failed"] is not None:
            outcome = "failed"
        if outcome == "time":
            belief.time(row, float(event["seconds"]), float(event["error"]))
            belief.memory(row, np.inf if memory is None else float(memory))
        elif outcome == "oom":
            belief.memory(row, None)
        else:
            belief.exclude(row)
        self.trials[index] = replace(
            self.trials[index],
            outcome=outcome,
            seconds=event["seconds"],
            failed=event["failed"],
            memory_bytes=memory,
            took=float(event["took"]),
        )
        self._wait()

    def _apply(self, event: Mapping[str, Any]) -> None:
        if "asked" in event:
            asked = dict(event["asked"])
            plan = Plan(**asked.pop("plan"))
            row = self.candidates.find(plan)
            while (chosen := self.belief.choose()) not in (row, None) and self._launch(chosen) is None:
                continue  # excluded, as it was when the trial began
            self._note_asked(Trial(plan=plan, **asked, launch=self._launch(row)), row)
        else:
            self._told(event)
            self.verify()

    def best(self) -> Best | None:
        """Return the fastest plan measured; None before any was."""
        row = self.belief.best
        if row is None:
            return None
        trial = self._trial_of(row)
        return Best(trial.number, trial.plan, float(np.exp(np.mean(np.log(self.belief.times[row])))))

    def remaining_gain(self) -> Remaining:
        """Return the probability that no candidate is faster by 1%, and the expected remaining gain."""
        outlook: Outlook = self.belief.outlook
        return Remaining(outlook.within, None if self.belief.best is None else outlook.gain)

    def learnt(self) -> Learnt | None:
        """Return what trials show of the machine as a whole; None before any time."""
        if not self.belief.times:
            return None
        mean, deviation = self.belief.shared
        reach = float(np.exp(NORMAL_90_PERCENT * deviation))
        repeats = sum(len(times) - 1 for times in self.belief.times.values())
        factor = float(np.exp(mean))
        return Learnt(factor, factor / reach, factor * reach, self.belief.trial_noise, repeats)

    def report(self) -> TuneReport:
        """Return the best plan, how sure it is, and what was learnt."""
        first = self.trials[0] if self.trials else None
        return TuneReport(
            job=self.job,
            launched=None if self.launcher is None else self.launcher.name,
            candidates=int(np.count_nonzero(~self.belief.excluded)),
            trials=self.trials,
            best=self.best(),
            remaining=self.remaining_gain(),
            stopped=self.stopped,
            learnt=self.learnt(),
            first_seconds=None if first is None else first.seconds,
        )

    def calibration(self) -> "Calibration":
        """Return the system fitted to the trials: its constants that they determine.

        Raises
        ------
        InputError
            If no trial has a time, or the system was given as an object: a name or a file can be calibrated.
        """
        from traincast.accuracy import Measured, fitted_to

        if self.base is None:
            raise InputError("system", ["is an object: give its name or file, which can be calibrated"])
        measured = [trial for trial in self.trials if trial.outcome == "time"]
        if not measured:
            raise InputError("calibration", ["no trial has a time"])
        runs = tuple(self._run(trial.plan, trial) for trial in measured)
        return fitted_to(self.base, Measured(self.system, runs=runs))

    def _run(self, plan: Plan, trial: Trial | None = None) -> Run:
        """Return a plan of the job as a run, with the time of its trial."""
        return Run(
            id=str(plan) if trial is None else f"trial {trial.number}",
            source="traincast tune",
            stack=self.assumptions.name,
            model=self.model,
            system=self.system,
            plan=plan,
            gbs=self.gbs,
            step_seconds=None if trial is None else trial.seconds,
        )


_ASKED: Final = ("number", "predicted_seconds", "expected_seconds", "low", "high", "fits_probability", "why")
