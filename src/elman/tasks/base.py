"""What a task is, and what its trained model can do: all that the API, the command line and a server may use.

A task is one folder: settings, data, net, plan, and a `Task` that puts them together. What it trains is a `TaskModel`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, get_args

from elman import store
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.core.settings import Config, Sections, make
from elman.tasks.encoding import Encodes
from elman.tasks.examples import A as A
from elman.tasks.examples import Examples as Examples
from elman.tasks.examples import H as H
from elman.tasks.examples import Prepared as Prepared
from elman.tasks.examples import R as R
from elman.tasks.explained import Explained
from elman.tasks.exported import Exports
from elman.tasks.options import EvaluateOptions as EvaluateOptions
from elman.tasks.options import PredictOptions as PredictOptions
from elman.tasks.options import refuse_options as refuse_options
from elman.tasks.shared_files import shared_files
from elman.tasks.showing import Shown
from elman.text.readers import Sources, as_sources
from elman.training.budget import Budget
from elman.training.config import TrainConfig
from elman.training.plan import Means, Plan
from elman.training.progress import Outcome, Progress, Wording
from elman.training.world import ALONE, World

if TYPE_CHECKING:
    from elman.tasks.lm.model import Model
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

AnyRecord = store.Record[Any, Any]
Report = Callable[[str], None]
OnProgress = Callable[[Progress], None]
ReadFile = Callable[[str], bytes]
ShouldStop = Callable[[], bool]


# ------------------------------------------------------------------------------------------------- what a user asks for


@dataclass(frozen=True)
class TrainRequest:
    """A training as it was asked for, from the command line or from Python."""

    task: str
    data: Sources
    settings: Sections  # by section: what flags, --set and a recipe say
    valid: Sources | None = None
    holds_out: bool = False  # a part of the data is held out instead of `valid`
    targets: Sources | None = None  # line by line the other side of the data
    valid_targets: Sources | None = None
    out: Path | None = None  # None: the model is only given back
    budget: Budget | None = None
    memory_bytes: int | None = None
    init: Path | None = None  # a model to go on from
    seed: int = 1
    threads: int | None = None
    device: str | None = None
    command: str | None = None
    report: Report = lambda sentence: None
    on_progress: OnProgress = lambda progress: None
    world: World = ALONE  # the processes that train together

    def say(self, sentences: Iterable[str]) -> None:
        """Tell the user something."""
        for sentence in sentences:
            self.report(sentence)


# ------------------------------------------------------------------------------------------------------ a trained model


class Prediction(ABC):
    """What a model says of one line, sentence or question."""

    is_cut: bool = False  # only a part of its source was read

    def pair(self) -> tuple[str, str | None] | None:
        """What was read and, of pairs, written: of which a picture of attention can be drawn. None where there is none."""
        return None

    @abstractmethod
    def line(self) -> str:
        """As `predict` prints it."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """As `predict --json` prints it."""


class TaskModel(Shown, Explained, Encodes, Exports, ABC, Generic[R]):
    """A trained model at the text level."""

    record: R
    directory: Path | None
    predict_takes: ClassVar[frozenset[str]] = frozenset()  # fields of PredictOptions that apply
    evaluate_takes: ClassVar[frozenset[str]] = frozenset()  # fields of EvaluateOptions that apply

    def predict_lines(self, sources: Sources, options: PredictOptions | None = None) -> Iterator[Prediction]:
        """An answer for every line of some files, in order, as soon as it is there."""
        options = options or PredictOptions()
        refuse_options(self.record.task, options, takes=self.predict_takes)
        return self._predict_lines(sources, options)

    def evaluate(self, data: str | Path | Sources, options: EvaluateOptions | None = None) -> dict[str, Any]:
        """Its numbers on some data."""
        options = options or EvaluateOptions()
        refuse_options(self.record.task, options, takes=self.evaluate_takes)
        return self._evaluate(as_sources(data), options) | {"seed": options.seed}

    @abstractmethod
    def _predict_lines(self, sources: Sources, options: PredictOptions) -> Iterator[Prediction]:
        """`predict_lines`, when the options apply."""

    @abstractmethod
    def _evaluate(self, data: Sources, options: EvaluateOptions) -> dict[str, Any]:
        """`evaluate`, when the options apply."""

    @abstractmethod
    def tensors(self) -> dict[str, Array]:
        """Every array that is saved."""

    @abstractmethod
    def files(self) -> dict[str, bytes]:
        """Every other file that is saved, but those that every model has."""

    def pictures(self, numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Pictures (Vega-Lite) of what `evaluate` found, the most telling first."""
        return []

    def language_model(self) -> Model:
        """See `Explained`."""
        found: Model = super().language_model()
        return found

    def to_int8(self) -> TaskModel[R]:
        """The model with 8-bit weights."""
        raise UsageError(
            f"a model of the task {self.record.task} cannot have 8-bit weights",
            code="not-for-this-model",
            hint="language models with recurrent nets can",
        )

    def save(self, directory: str | Path, *, overwrite: bool = False) -> None:
        """Write the model into a directory, all of it or nothing."""
        with store.reserve(Path(directory), overwrite=overwrite):
            store.save(Path(directory), self.record, tensors=self.tensors(), contents=self.files())

    def info(self) -> dict[str, Any]:
        """What it is, how it was made, and its numbers."""
        record, tensors = self.record, self.tensors()
        return {
            "directory": str(self.directory) if self.directory else None,
            "task": record.task,
            "settings": record.model.model_dump(mode="json"),
            "labels": len(getattr(record, "labels", ())) or None,
            "parameters": sum(array.size for array in tensors.values()),
            "bytes": sum(array.nbytes for array in tensors.values()),
            "source": record.source.model_dump() if record.source else None,
            "seed": record.seed,
            "seconds": record.seconds,
            "command": record.command,
            "valid": record.valid,
            "notes": list(record.notes),
        }


class NetModel(TaskModel[R], Generic[R, A]):
    """A net with what belongs to it."""

    def __init__(self, record: R, assets: A, net: Any, directory: Path | None = None) -> None:
        self.record = record
        self.assets = assets
        self.net = net
        self.directory = directory

    def tensors(self) -> dict[str, Array]:
        """The weights."""
        found: dict[str, Array] = self.net.tensors()
        return found

    def files(self) -> dict[str, bytes]:
        """Those of the assets."""
        return self.assets.files()


# --------------------------------------------------------------------------------------------------------------- a task


class Task(ABC, Generic[R]):
    """What can be trained under one name."""

    name: ClassVar[str]
    flags: ClassVar[frozenset[str]] = frozenset()  # of `train`, besides those for every task: reset_lines, memory, ...
    makes_language_models: ClassVar[bool] = False  # its models say how likely every next token of a text is

    def is_trained(self, model: str | None) -> bool:
        """Whether models of that name are trained for a while, so that they take a budget, rather than counted at once."""
        return True

    def model_names(self) -> tuple[str, ...]:
        """What --model can be; the first is the default."""
        return ()

    def records(self) -> Iterator[tuple[str, type[Config], frozenset[str]]]:
        """Sections of its settings (`model` for each kind), the record of each, and the fields that do not apply."""
        return iter(())

    def complete(self, request: TrainRequest) -> TrainRequest:
        """The request with what a model to go on from (`init`) has settled."""
        return request

    @abstractmethod
    def check(self, request: TrainRequest) -> None:
        """Refuse settings that cannot apply, before anything is read."""

    @abstractmethod
    def train(self, request: TrainRequest) -> TaskModel[R]:
        """Read, train, measure and save. The directory is reserved by the caller."""

    @abstractmethod
    def load(self, directory: Path, *, verify: bool) -> TaskModel[R]:
        """The model that was saved in a directory."""


class NetTask(Task[R], Generic[R, A, H]):
    """A task whose models are nets, trained by one procedure (`tasks.run`)."""

    record_type: ClassVar[type[Any]]
    model_type: ClassVar[type[Any]]  # the net as a model at the text level
    measuring_share: ClassVar[float] = 0.06  # of a budget, at most, for the numbers on the held-out rows at the end
    has_streams: ClassVar[bool] = False  # whether train.bptt and train.bptt_spread apply
    fits_temperature: ClassVar[bool] = False  # whether train.fit_temperature applies
    plans_an_end: ClassVar[bool] = False  # its plan says after how many passes a run is over
    takes_foundation: ClassVar[bool] = False  # whether `init` is a language model whose words and cells are taken

    def model_names(self) -> tuple[str, ...]:
        """The families that the model's record lists, its default first."""
        field = self.record_type.model_fields["model"].annotation.model_fields["family"]
        return tuple(sorted(get_args(field.annotation), key=lambda name: name != field.default))

    def records(self) -> Iterator[tuple[str, type[Config], frozenset[str]]]:
        """Those of its own record, and how nets are trained."""
        yield "data", self.record_type.model_fields["data"].annotation, frozenset()
        for record in self.model_records():
            yield "model", record, frozenset()
        yield "train", TrainConfig, self.unused_train_keys()

    def model_records(self) -> tuple[type[Config], ...]:
        """The record of each kind of models."""
        return (self.record_type.model_fields["model"].annotation,)

    def unused_train_keys(self) -> frozenset[str]:
        """Fields of TrainConfig that do not apply."""
        streams = frozenset() if self.has_streams else frozenset({"bptt", "bptt_spread"})
        temperature = frozenset() if self.fits_temperature else frozenset({"fit_temperature"})
        return streams | temperature | (frozenset() if self.takes_foundation else {"freeze"})

    def data_settings(self, given: Mapping[str, Any]) -> Any:
        """The record of the data that was asked for."""
        return make(self.record_type.model_fields["data"].annotation, given, section="data")

    def model_settings(self, given: Mapping[str, Any]) -> Any:
        """The record of the model that was asked for."""
        return make(self.record_type.model_fields["model"].annotation, given, section="model")

    def check(self, request: TrainRequest) -> None:
        """Refuse settings that this task does not have, or that do not fit together."""
        self.data_settings(request.settings["data"])
        self.model_settings(request.settings["model"])
        unused = self.unused_train_keys() | (frozenset() if request.init else {"freeze"})
        for key in unused & request.settings["train"].keys():
            raise UsageError(f"train.{key} does not apply to {self.name}", code="does-not-apply", hint="leave it out")

    def new_record(
        self,
        request: TrainRequest,
        *,
        data: Config,
        model: Config,
        source: store.Source,
        notes: Iterable[str],
        own: Mapping[str, Any] | None = None,
    ) -> R:
        """The record of a model to be, complete but for what training adds. own: fields that only this task has."""
        doubts = shared_files(request)
        request.say(doubts)
        found: R = self.record_type(
            task=self.name,
            data=data,
            model=model,
            seed=request.seed,
            source=source,
            command=request.command,
            notes=(*notes, *doubts),
            **(own or {}),
        )
        return found

    def train(self, request: TrainRequest) -> TaskModel[R]:
        """Read, size, train, measure and save."""
        from elman.tasks.run import check_start, train_net

        check_start(self, request)
        return train_net(self, self.prepare(request), request)

    def load(self, directory: Path, *, verify: bool) -> TaskModel[R]:
        """The model that was saved in a directory."""

        def restore(saved: store.Saved[R]) -> TaskModel[R]:
            from elman.nets.allocation import BoundedBy

            assets, tensors = self.read_assets(saved.record, saved.read), saved.tensors()
            with BoundedBy(tensors):
                net = saved.restore(lambda tensors: self.restore(saved.record, assets, tensors), tensors)
            return self.wrap(saved.record, assets, net, directory)

        return store.load(directory, self.record_type, restore, verify=verify)

    @abstractmethod
    def prepare(self, request: TrainRequest) -> Prepared[R, A, H]:
        """Read the data and learn its vocabulary."""

    @abstractmethod
    def plan(self, prepared: Prepared[R, A, H], means: Means) -> Plan:
        """Sizes for what the user has not set."""

    @abstractmethod
    def build(self, record: R, examples: Examples[A, H], *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""

    @abstractmethod
    def batches(self, record: R, examples: Examples[A, H], *, train: TrainConfig) -> Batches:
        """The training rows as batches."""

    @abstractmethod
    def examiner(self, record: R, net: Any, examples: Examples[A, H], *, train: TrainConfig) -> Examiner | None:
        """Who validates on the way; None without held-out rows."""

    def wording(self, record: R) -> Wording:
        """What the numbers of a run are called."""
        return Wording()

    def finishing_seconds(self, record: R, examples: Examples[A, H], budget: Budget) -> float:
        """What is kept of a budget for what comes after training: `measure` and `finish`."""
        return budget.seconds * self.measuring_share

    def measure(
        self, model: Any, examples: Examples[A, H], outcome: Outcome, *, should_stop: ShouldStop
    ) -> dict[str, Any] | None:
        """The model's numbers on the held-out rows, by the keys of `evaluate`; None without any.

        When it should stop it returns the numbers of the part it has seen, and `notes` that say how many rows these were.
        """
        found = None if examples.heldout is None else model.numbers(examples.heldout, should_stop=should_stop)
        return None if found is None else {key: value for key, value in found.items() if key != "confusions"}

    def finish(
        self, model: Any, examples: Examples[A, H], outcome: Outcome, *, deadline: float
    ) -> tuple[TaskModel[R], dict[str, Any] | None]:
        """The trained model with all that is fitted on the held-out rows after training, and its numbers (`measure`)."""
        return model, self.measure(model, examples, outcome, should_stop=lambda: time.monotonic() > deadline)

    @abstractmethod
    def restore(self, record: R, assets: A, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""

    def wrap(self, record: R, assets: A, net: Any, directory: Path | None) -> TaskModel[R]:
        """The net as a model at the text level."""
        model: TaskModel[R] = self.model_type(record, assets, net, directory)
        return model

    @abstractmethod
    def read_assets(self, record: R, read: ReadFile) -> A:
        """The assets that were written."""

    @abstractmethod
    def heldout_to_json(self, heldout: H) -> list[Any]:
        """Held-out rows as JSON, a value for each."""

    @abstractmethod
    def heldout_from_json(self, rows: list[Any]) -> H:
        """Held-out rows that were written."""

    def identity(self, record: R, batches: Batches, train: TrainConfig) -> dict[str, Any]:
        """What cannot change between a stop and going on."""
        return {"tokens": batches.tokens_per_epoch}
