"""The declaration of an analysis: options, needs, cost, measurement and presentation in one.

An `Analysis` is a frozen dataclass whose fields are its options. From its declaration follow
the command, its help, its place in a study and in the plan, its section of the report, and its
row in the documentation. The file of an analysis holds its result, its computation and this
declaration, and imports `visprism.kit`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar, dataclass_transform

import torch
from torch.optim import Optimizer

from visprism.core.devices import require_default_device
from visprism.core.errors import InputError
from visprism.core.files import digest_of
from visprism.core.options import Effort, check_options, check_used, options_of, unused
from visprism.core.registry import Registry, suggestion
from visprism.core.run import DEFAULT_RUN, Run
from visprism.kit.inputs import subject_of
from visprism.kit.model_on_images import Measured, Subject, forget_choice
from visprism.kit.needs import Cost, Needs, Sizes
from visprism.passes.features import observations
from visprism.passes.statistic import FeatureStatistic, PassResult
from visprism.table.result import Result
from visprism.table.section import Section

A = TypeVar("A", bound="Analysis")
R = TypeVar("R")

# In the order of help texts, reports and documentation.
GROUPS = ("model", "feature maps", "attention", "weights", "loss", "predictions", "robustness")


class Analysis(ABC):
    """Base of all analyses; subclasses are frozen dataclasses registered in `ANALYSES`.

    The first line of the docstring is the help of the command, the title in the documentation
    and the phrase in the plan: the quantity, as a noun phrase.

    Class attributes:
        name: of the command and of the key in a study, with hyphens.
        group: one of `GROUPS`; analyses are listed by group, then by name.
        needs: see `Needs`.
        source: paper, section or figure.
        gives: the types of its results, the main one first; a `Section` where a type is
            presented otherwise than it declares itself.
        sections: how each of these is presented; made from `gives`.
        images: how many a study measures at each effort; see `Sizes`.
        full_precision: whether the precision must be "fp32", as derivatives need it.
        rank: a study measures low ranks first; within a rank, what costs less.
        claims: identifiers of the claims of Park & Kim (2022) that the analysis speaks to.
        default: whether a study runs it when no analyses are named.
        measured_by: the command that measures it, if that is not a command of this name.
        passes: forward passes for each image, with what is computed of them.
        required: name of the option that must be set.
    """

    name: ClassVar[str]
    group: ClassVar[str] = "feature maps"
    needs: ClassVar[Needs] = Needs.NOTHING
    source: ClassVar[str] = ""
    gives: ClassVar[type[Result] | tuple[type[Result] | Section, ...]] = ()
    sections: ClassVar[tuple[Section, ...]] = ()
    images: ClassVar[Sizes] = Sizes()
    full_precision: ClassVar[bool] = False
    rank: ClassVar[int] = 2
    claims: ClassVar[tuple[str, ...]] = ()
    default: ClassVar[bool] = True
    measured_by: ClassVar[str] = ""
    passes: ClassVar[float] = 0.0
    required: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_options(self)
        check_used(self, unused(self.used()))

    def used(self) -> Mapping[str, tuple[object, str]]:
        """Options that need another setting: whether it is made, and what it is.

        A value for an option without that setting is refused, as it would have no effect.
        """
        return {}

    @abstractmethod
    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Measure one model; the main result comes first."""

    def cost(self, subject: Subject) -> Cost:
        """Expected cost for one model, cheap to compute: `passes` unless overridden."""
        return Cost(per_image=self.passes)

    def compare(self, first: Measured, second: Measured, run: Run) -> Sequence[Result]:
        """Results about two models together; none by default."""
        return ()

    def comparison_cost(self, subject: Subject) -> Cost:
        """Expected cost of `compare` for one of its models; none by default."""
        return Cost()

    def inapplicable(self, subject: Subject) -> str | None:
        """Why the analysis cannot run on this model and data, as a sentence; None if it can.

        Checked against `needs` and `required`; subclasses extend it.
        """
        if self.required and not getattr(self, self.required):
            help = options_of(type(self))[self.required].info.help
            return f"the option {self.required} is not set: {help}"
        return subject.missing(self.needs)

    @classmethod
    def content(cls, options: Mapping[str, Any]) -> list[str]:
        """Digests of what options name: of checkpoints; in subclasses also of images.

        A stored result is used again only while they are the same.
        """
        return [digest_of(Path(file)) for file in options.get("checkpoints", ())]

    def at_step(self, step: int, optimizers: Sequence[Optimizer]) -> "Analysis":
        """The analysis at a step of a training; itself where it reads no optimizer."""
        return self

    @classmethod
    def check_precision(cls, precision: str) -> None:
        """Check the precision before model and data are loaded."""
        if cls.full_precision and precision != "fp32":
            raise InputError(f"precision must be 'fp32' for {cls.name}, got {precision!r}")

    @torch.inference_mode(mode=False)  # of the caller: it has no gradients
    def __call__(  # noqa: ANN204 (any result)
        self,
        model: Any,
        data: Any,
        *,
        preprocessing: Any = None,
        task: Any = None,
        device: str | None = None,
        run: Run = DEFAULT_RUN,
    ):
        """Measure one model outside of a study and return the main result.

        Args:
            model: an ``nn.Module`` in evaluation mode, a name, or whatever else `examine`
                takes.
            data: batches of ``(images, targets)`` or of images, a data set, a name, or whatever
                else `examine` takes; all images, in their order.
            preprocessing: resize, crop and normalization; needed where pixels are changed.
            task: what outputs mean, by name or as a `Task`; None: as the data state.
            device: as torch names it; by default the run's, or where the model lies.
            run: device, precision, seed and progress.
        """
        require_default_device()
        run = run.at(device)
        subject = subject_of(model, data, preprocessing=preprocessing, run=run, task=task)
        try:
            reason = self.inapplicable(subject)
            if reason is not None:
                raise InputError(f"{self.name} does not apply: {reason}")
            return self.measure(subject, subject.named(run))[0]
        finally:
            forget_choice(subject.model)


def reason_of_error(compute: Callable[..., object], *args: Any) -> str | None:
    """The sentence of the `InputError` that a computation raises; None if it raises none."""
    try:
        compute(*args)
    except InputError as error:
        return str(error)
    return None


class FeatureAnalysis(Analysis, FeatureStatistic):
    """An analysis of feature maps or attention weights, which shares the one pass.

    A subclass defines `extract`, and `results` where a type of `gives` needs more than the
    values by image with the names of its estimates; see `FeatureStatistic`.
    """

    needs: ClassVar[Needs] = Needs.FEATURES
    rank: ClassVar[int] = 1
    passes: ClassVar[float] = 1.2

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Measure one model; see `Analysis.measure`."""
        return observations(subject.anatomy, subject.batches(), [self], run=run)[0]

    def results(self, seen: PassResult) -> Sequence[Result]:
        """The results of `gives`, each made from the values with the names of its estimates."""
        return [seen.result(section.result) for section in self.sections]


class AnalysisRegistry(Registry):
    """Analyses by name; a plug-in registers its own with the same decorator."""

    def __init__(self) -> None:
        super().__init__("analysis", "visprism.analyses")

    @dataclass_transform(frozen_default=True)
    def register(self, cls: type[A]) -> type[A]:  # pyrefly: ignore
        """Make a class a frozen dataclass, and add it under its name."""
        if "__dataclass_fields__" not in vars(cls):
            cls = dataclass(frozen=True)(cls)
        if cls.group not in GROUPS:
            raise InputError(f"group must be one of {', '.join(GROUPS)}, got {cls.group!r}")
        gives = (cls.gives,) if isinstance(cls.gives, type) else cls.gives
        if gives:
            sections = [g if isinstance(g, Section) else g.section for g in gives]
            main = sections[0].title
            cls.sections = tuple(replace(s, title=s.title.format(main=main)) for s in sections)
        self.add(cls.name, cls)
        return cls

    def __getitem__(self, name: str) -> type[Analysis]:
        analysis = super().__getitem__(name)
        assert isinstance(analysis, type)  # `register` takes classes only
        return analysis

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__(), key=lambda n: (GROUPS.index(self[n].group), n)))

    def chosen(
        self,
        analyses: "Iterable[str | Analysis | type[Analysis]] | Analysis | None",
        options: Mapping[str, Mapping[str, Any]] | None = None,
        effort: Effort = "standard",
    ) -> list[Analysis]:
        """Analyses by name or as they are, with options by the name of the analysis.

        Options that are not given have their values at the effort; an instance stays as it is.
        """
        options = dict(options or {})
        if analyses is None:
            analyses = [name for name in self if self[name].default]
        single = not isinstance(analyses, Iterable) or isinstance(analyses, str)
        made: list[Analysis] = []
        for item in [analyses] if single else analyses:
            if isinstance(item, Analysis):
                if item.name in options:
                    raise InputError(
                        f"options of {item.name} must be given once, got an instance with "
                        "options and a mapping. Set them in the instance."
                    )
                made.append(item)
            else:
                cls = item if isinstance(item, type) else self[item]
                made.append(_made(cls, options.pop(cls.name, {}), effort))
        if not made:
            raise InputError("analyses must name at least one analysis, got none")
        if options:
            self[next(iter(options))]  # unknown names are reported with a suggestion
            raise InputError(
                f"options must be of analyses that run, got options of {', '.join(options)}"
            )
        repeated = {a.name for a in made if sum(b.name == a.name for b in made) > 1}
        if repeated:
            raise InputError(f"analyses must be named once each, got {min(repeated)} twice")
        return made


def _made(cls: type[Analysis], values: Mapping[str, Any], effort: Effort) -> Analysis:
    for key in values:
        if key not in options_of(cls):
            raise InputError(
                f"{cls.name} has no option {key!r}. {suggestion(key, list(options_of(cls)))}"
            )
    efforts = {name: o.info.by_effort for name, o in options_of(cls).items()}
    others = {name: by[effort] for name, by in efforts.items() if effort in by}
    try:
        return cls(**{**others, **values})
    except InputError as error:
        raise InputError(f"{cls.name}: {error}") from None


ANALYSES = AnalysisRegistry()
analysis = ANALYSES.register
