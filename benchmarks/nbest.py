"""N-best lists of a recogniser that hears every word through a noisy channel of phonemes, made of any text.

    python benchmarks/nbest.py TEXT CMUDICT.tsv OUT [--lines 1000] [--size 50] [--noise 0.1] [--words TRAIN] [--seed 1]

TEXT has a sentence a line, its words separated by spaces; CMUDICT.tsv has `word TAB phonemes`. Of every word's phonemes
some are changed, lost or doubled by chance. What a word could have been are words of TRAIN; the score of a hypothesis is
the log-probability of what was heard under this channel, and that of its words one by one (their share of TRAIN). Writes
OUT.nbest.tsv (`id TAB score TAB text`, the best first) and OUT.references.tsv. A word without a pronunciation is heard
as it is.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from rapidfuzz.distance import Levenshtein

MAX_CANDIDATES = 12  # for a word
Sound = tuple[str, ...]


def read_sounds(path: str, words: set[str]) -> dict[str, Sound]:
    """The first pronunciation of each word, without stress."""
    sounds: dict[str, Sound] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        word, _, phonemes = line.partition("\t")
        if word in words:
            sounds.setdefault(word, tuple(re.sub(r"\d", "", phonemes).split()))
    return sounds


def hear(sound: Sound, noise: float, phonemes: Sequence[str], rng: random.Random) -> Sound:
    """What is heard: of three changes, two put another phoneme there, one takes it away or doubles it."""
    heard: list[str] = []
    for phoneme in sound:
        if rng.random() >= noise:
            heard.append(phoneme)
        elif rng.random() < 2 / 3:
            heard.append(rng.choice(phonemes))
        elif rng.random() < 0.5:
            heard += [phoneme, phoneme]
    return tuple(heard)


class Channel:
    """From a heard sound to the words it could have been."""

    def __init__(self, sounds: dict[str, Sound], known: Counter[str], noise: float, num_phonemes: int) -> None:
        self._log_shares = {word: math.log(known[word] / known.total()) for word in sounds}
        self._by_length: dict[int, list[tuple[str, Sound]]] = defaultdict(list)
        for word, sound in sounds.items():
            self._by_length[len(sound)].append((word, sound))
        self._change = math.log(noise / num_phonemes)
        self._keep = math.log(1 - noise)
        self._cache: dict[Sound, list[tuple[float, str]]] = {}

    def candidates(self, heard: Sound) -> list[tuple[float, str]]:
        """Words and the log-probability that one is said and this is heard, the likeliest first."""
        if heard not in self._cache:
            near = [one for size in range(len(heard) - 2, len(heard) + 3) for one in self._by_length[size]]
            scored = ((self._score(sound, heard) + self._log_shares[word], word) for word, sound in near)
            self._cache[heard] = heapq.nlargest(MAX_CANDIDATES, scored)
        return self._cache[heard]

    def _score(self, sound: Sound, heard: Sound) -> float:
        changes = Levenshtein.distance(sound, heard)
        return changes * self._change + max(0, len(sound) - changes) * self._keep


def n_best(choices: Sequence[Sequence[tuple[float, str]]], size: int) -> list[tuple[float, str]]:
    """The likeliest sentences, a word of each choice."""
    beams: list[tuple[float, tuple[str, ...]]] = [(0.0, ())]
    for choice in choices:
        grown = ((score + more, (*words, word)) for score, words in beams for more, word in choice)
        beams = heapq.nlargest(size, grown)
    return [(score, " ".join(words)) for score, words in beams]


def main() -> None:
    """Write lists and references."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("sounds")
    parser.add_argument("out")
    parser.add_argument("--words", help="a text whose words can be recognised; TEXT itself if not given")
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--size", type=int, default=50)
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    lines = [" ".join(line.split()) for line in Path(given.text).read_text(encoding="utf-8").splitlines()]
    lines = [line for line in lines if line][: given.lines]
    known = Counter(Path(given.words or given.text).read_text(encoding="utf-8").split())
    sounds = read_sounds(given.sounds, set(known))
    phonemes = sorted({phoneme for sound in sounds.values() for phoneme in sound})
    channel = Channel(sounds, known, given.noise, len(phonemes))
    with Path(f"{given.out}.nbest.tsv").open("w", encoding="utf-8") as lists:
        for number, line in enumerate(lines, 1):
            heard = [
                hear(sounds[word], given.noise, phonemes, rng) if word in sounds else None for word in line.split()
            ]
            choices = [
                [(0.0, word)] if sound is None else channel.candidates(sound)
                for word, sound in zip(line.split(), heard, strict=True)
            ]
            for score, text in n_best([choice for choice in choices if choice], given.size):
                lists.write(f"{number}\t{score:.4f}\t{text}\n")
    references = "".join(f"{number}\t{line}\n" for number, line in enumerate(lines, 1))
    Path(f"{given.out}.references.tsv").write_text(references, encoding="utf-8")


if __name__ == "__main__":
    main()
