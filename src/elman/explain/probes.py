"""Sentences in which one word depends on another one far before it: agreement, recall and copying over growing distance.

    items("recall", distances=(10, 50), count=100, rng=rng) -> sentences with a gap at the end and what may fill it

A model that does not keep the early word can only guess the late one. Knows nothing of models. `lines` are the same
sentences with the right word in its place, to train on.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from elman.core.errors import UsageError, no_such


@dataclass(frozen=True)
class Item:
    """A sentence up to a gap, and the words that may fill it, one of them right."""

    before: str
    choices: tuple[str, ...]
    right: int
    distance: int  # words from the gap back to the one that decides
    after: str = ""  # how the sentence ends

    @property
    def line(self) -> str:
        """The whole sentence with the right word in the gap."""
        return " ".join(filter(None, (self.before, self.choices[self.right], self.after)))


class Probe(ABC):
    """A grammar. Its distances are first, first + step, first + 2 step and so on."""

    first: ClassVar[int]
    step: ClassVar[int]
    chance: ClassVar[float]  # share that is right by guessing

    def nearest(self, distance: int) -> int:
        """The largest distance that it has up to this one; at least its first."""
        return self.first + max(0, distance - self.first) // self.step * self.step

    def item(self, distance: int, rng: np.random.Generator) -> Item:
        """A sentence over about this distance."""
        return self._make((self.nearest(distance) - self.first) // self.step, rng)

    @abstractmethod
    def _make(self, fillers: int, rng: np.random.Generator) -> Item:
        """A sentence with so many phrases of `step` words before the gap that do not matter."""


class Agreement(Probe):
    """The verb agrees with the first noun, whatever the number of the nouns between: `the report of the men is old`"""

    first, step, chance = 1, 3, 0.5
    subjects = (
        ("report", "reports"),
        ("company", "companies"),
        ("man", "men"),
        ("woman", "women"),
        ("car", "cars"),
        ("house", "houses"),
        ("bank", "banks"),
        ("plan", "plans"),
    )
    links = ("of", "near", "with", "behind", "for")
    verbs = (("is", "are"), ("was", "were"), ("has", "have"))
    ends: ClassVar[dict[str, tuple[str, ...]]] = {
        "be": ("old", "new", "good", "here"),
        "have": ("changed", "come", "gone"),
    }

    def _make(self, fillers: int, rng: np.random.Generator) -> Item:
        number = int(rng.integers(2))
        words = ["the", self._noun(number, rng)]
        for _ in range(fillers):
            words += [_one_of(self.links, rng), "the", self._noun(int(rng.integers(2)), rng)]
        verb = self.verbs[rng.integers(len(self.verbs))]
        end = _one_of(self.ends["have" if "has" in verb else "be"], rng)
        return Item(" ".join(words), verb, number, self.first + fillers * self.step, end)

    def _noun(self, number: int, rng: np.random.Generator) -> str:
        return self.subjects[rng.integers(len(self.subjects))][number]


class Recall(Probe):
    """What was tried first is done at the end: `when she tried to print her tickets … then she finally printed her tickets`"""

    first, step = 13, 5
    objects = ("tickets", "letters", "photos", "books", "plans", "cards", "notes", "papers")
    chance = 1 / len(objects)
    people = (("she", "her"), ("he", "his"), ("they", "their"))
    acts = (("print", "printed"), ("find", "found"), ("sell", "sold"), ("send", "sent"))
    things = ("house", "office", "store", "door", "computer", "car")
    states = ("broken", "closed", "empty", "old", "gone", "locked")
    fillers = (
        "the {thing} was very {state}",
        "{she} went to the {thing}",
        "but the {thing} was {state}",
        "{she} saw no {thing} there",
    )

    def _make(self, fillers: int, rng: np.random.Generator) -> Item:
        she, her = self.people[rng.integers(len(self.people))]
        act, done = self.acts[rng.integers(len(self.acts))]
        right = int(rng.integers(len(self.objects)))

        def fill(pattern: str) -> str:
            return pattern.format(thing=_one_of(self.things, rng), state=_one_of(self.states, rng), she=she)

        told = [f"when {she} tried to {act} {her} {self.objects[right]}"]
        told.append(fill("{she} found that the {thing} was {state}"))
        told += [fill(_one_of(self.fillers, rng)) for _ in range(fillers)]
        told.append(f"then {she} finally {done} {her}")
        return Item(" ".join(told), self.objects, right, self.first + fillers * self.step)


class Copy(Probe):
    """A symbol, noise, and the symbol again when it is asked for: `c z z x y w = c`"""

    first, step = 2, 1
    symbols = tuple("abcdefgh")
    noise = tuple("wxyz")
    chance = 1 / len(symbols)

    def _make(self, fillers: int, rng: np.random.Generator) -> Item:
        right = int(rng.integers(len(self.symbols)))
        words = [self.symbols[right], *(_one_of(self.noise, rng) for _ in range(fillers)), "="]
        return Item(" ".join(words), self.symbols, right, self.first + fillers)


PROBES: dict[str, Probe] = {"agreement": Agreement(), "recall": Recall(), "copy": Copy()}


def probe_named(name: str) -> Probe:
    """A grammar by its name."""
    if name not in PROBES:
        raise no_such("probe", name, list(PROBES))
    return PROBES[name]


def items(name: str, *, distances: Sequence[int], count: int, rng: np.random.Generator) -> Iterator[Item]:
    """So many sentences for each distance that the probe has."""
    probe = probe_named(name)
    for distance in sorted({probe.nearest(distance) for distance in distances}):
        for _ in range(count):
            yield probe.item(distance, rng)


def lines(name: str, *, longest: int, count: int, seed: int) -> Iterator[str]:
    """Sentences to train on. Short distances are more frequent, by the logarithm: they teach the long ones."""
    probe, rng = probe_named(name), np.random.default_rng(seed)
    if longest < probe.first:
        raise UsageError(f"{name} begins at a distance of {probe.first} words, longer than {longest}", code="bad-value")
    for _ in range(count):
        distance = math.exp(rng.uniform(math.log(probe.first), math.log(longest + 1)))
        yield probe.item(min(int(distance), longest), rng).line


def _one_of(words: Sequence[str], rng: np.random.Generator) -> str:
    return words[int(rng.integers(len(words)))]
