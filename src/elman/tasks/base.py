"""What a task is, and what its trained model can do: all that the API, the command line and a server may use.

A task is one folder: settings, data, net, plan, and a `Task` that puts them together. What it trains is a `TaskModel`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, get_args

from elman import store
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.core.settings import Config, Sections, make
from elman.tasks.encoding import Encodes
from elman.tasks.foundation import Given
from elman.text.readers import Sources, as_sources
from elman.training.budget import Budget
from elman.training.config import TrainConfig
from elman.training.plan import Means, Plan
from elman.training.progress import Outcome, Progress

if TYPE_CHECKING:
    from elman.tasks.lm.model import Model
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

AnyRecord = store.Record[Any, Any]
R = TypeVar("R", bound=AnyRecord)  # the record of a task's models
A = TypeVar("A", bound="Assets")
H = TypeVar("H")  # held-out rows, as they were read


class Assets(Protocol):
    """What belongs to a model besides its weights: tokenizers, a linear baseline."""

    def files(self) -> dict[str, bytes]:
        """All of it as files, in a run and in a model directory."""


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

    def say(self, sentences: Iterable[str]) -> None:
        """Tell the user something."""
        for sentence in sentences:
            self.report(sentence)


@dataclass(frozen=True)
class PredictOptions:
    """How `predict` answers. What is not given is chosen by the model; what does not apply to a task is refused."""

    beam: int | None = None  # 1 is greedy
    n_best: int | None = None
    length_penalty: float | None = None
    prefix: str = ""  # with which every target has to begin
    max_tokens: int | None = None
    alignments: bool = False
    keep_unknown: bool = False
    truncate: bool = False  # sources that are too long are cut instead of refused
    format: str | None = None
    details: bool = False  # probabilities and attention too, for `as_json`


@dataclass(frozen=True)
class EvaluateOptions:
    """How `evaluate` measures."""

    beam: int | None = None
    reset_lines: bool | None = None  # None: as trained
    dynamic: bool = False
    dynamic_rate: float | None = None
    targets: Sources | None = None
    seed: int = 1


FLAGS = {"targets": "--target", "reset_lines": "--reset-lines (and --stream)"}
EVERYWHERE = {"details", "seed"}


def refuse_options(task: str, options: PredictOptions | EvaluateOptions, *, takes: frozenset[str]) -> None:
    """An error for the first option that was given and does not apply to a task."""
    for one in dataclasses.fields(options):
        if one.name not in takes | EVERYWHERE and getattr(options, one.name) != one.default:
            flag = FLAGS.get(one.name, "--" + one.name.replace("_", "-"))
            raise UsageError(f"{flag} does not apply to {task}", hint="leave it out")


# ------------------------------------------------------------------------------------------------------ a trained model


class Prediction(ABC):
    """What a model says of one line, sentence or question."""

    is_cut: bool = False  # only a part of its source was read

    @abstractmethod
    def line(self) -> str:
        """As `predict` prints it."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """As `predict --json` prints it."""


class TaskModel(Encodes, ABC, Generic[R]):
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
        """The language model that it is or holds; an error where it is none."""
        where = self.directory or "this"
        raise UsageError(f"{where} holds a model for {self.record.task}, not a language model")

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

    def model_names(self) -> tuple[str, ...]:
        """What --model can be; the first is the default."""
        return ()

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


@dataclass(frozen=True)
class Examples(Generic[A, H]):
    """What a run trains on and is judged by, and what its model will need besides weights."""

    assets: A
    arrays: Mapping[str, Array]  # rows as ids, those of training and those held out; memory-mapped in a resumed run
    heldout: H | None = None  # the held-out rows, to be measured by


@dataclass(frozen=True)
class Prepared(Generic[R, A, H]):
    """Data read and its vocabulary learned: all that a run needs from now on."""

    record: R  # `model` is completed when the time is known
    examples: Examples[A, H]
    start: Any | None = None  # a trained net to go on from
    foundation: Given | None = None  # words and cells to begin with


class NetTask(Task[R], Generic[R, A, H]):
    """A task whose models are nets, trained by one procedure (`tasks.run`)."""

    record_type: ClassVar[type[Any]]
    model_type: ClassVar[type[Any]]  # the net as a model at the text level
    measuring_share: ClassVar[float] = 0.06  # of a budget, at most, for the numbers on the held-out rows at the end
    has_streams: ClassVar[bool] = False  # whether train.bptt and train.bptt_spread apply
    fits_temperature: ClassVar[bool] = False  # whether train.fit_temperature applies
    takes_foundation: ClassVar[bool] = False  # whether `init` is a language model whose words and cells are taken

    def model_names(self) -> tuple[str, ...]:
        """The families that the model's record lists, its default first."""
        field = self.record_type.model_fields["model"].annotation.model_fields["family"]
        return tuple(sorted(get_args(field.annotation), key=lambda name: name != field.default))

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
        applies = {"bptt": self.has_streams, "bptt_spread": self.has_streams, "fit_temperature": self.fits_temperature}
        applies["freeze"] = self.takes_foundation and request.init is not None
        for key in request.settings["train"]:
            if not applies.get(key, True):
                raise UsageError(f"train.{key} does not apply to {self.name}", hint=f"leave train.{key} out")

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
        found: R = self.record_type(
            task=self.name,
            data=data,
            model=model,
            seed=request.seed,
            source=source,
            command=request.command,
            notes=tuple(notes),
            **(own or {}),
        )
        return found

    def train(self, request: TrainRequest) -> TaskModel[R]:
        """Read, size, train, measure and save."""
        from elman.tasks.run import train_net

        return train_net(self, self.prepare(request), request)

    def load(self, directory: Path, *, verify: bool) -> TaskModel[R]:
        """The model that was saved in a directory."""

        def restore(saved: store.Saved[R]) -> TaskModel[R]:
            assets = self.read_assets(saved.record, saved.read)
            net = saved.restore(lambda tensors: self.restore(saved.record, assets, tensors))
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

    def measure(
        self, model: Any, examples: Examples[A, H], outcome: Outcome, *, should_stop: ShouldStop
    ) -> dict[str, Any] | None:
        """Numbers on the held-out rows, or on those seen until it should stop, by the keys of `evaluate`; None without any."""
        found = None if examples.heldout is None else model.numbers(examples.heldout, should_stop=should_stop)
        return None if found is None else {key: value for key, value in found.items() if key != "confusions"}

    @abstractmethod
    def restore(self, record: R, assets: A, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""

    def wrap(self, record: R, assets: A, net: Any, directory: Path | None) -> TaskModel[R]:
        """The net as a model at the text level."""
        model: TaskModel[R] = self.model_type(record, assets, net, directory)
        return model

    # what of a run is on disk besides its arrays

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
