"""Smoothing written down a second time, straight from its definitions over dictionaries: slow, plain, and independent."""

from collections import defaultdict
from collections.abc import Callable, Sequence

EOS, BOS = 1, "<s>"
History = tuple


class Reference:
    """p(w | h) by definition, for a list of lines of word ids (each without its end of line)."""

    def __init__(self, lines: Sequence[Sequence[int]], order: int, vocab_size: int, *, reset_lines: bool) -> None:
        self.order, self.vocab_size = order, vocab_size
        if reset_lines:
            texts = [[BOS, *line, EOS] for line in lines]
        else:
            texts = [[EOS] + [word for line in lines for word in (*line, EOS)]]
        self.raw: list[dict] = [defaultdict(int) for _ in range(order + 1)]
        for text in texts:
            for end in range(1, len(text)):  # the first symbol is never predicted
                for k in range(1, min(order, end + 1) + 1):
                    self.raw[k][tuple(text[end - k + 1 : end + 1])] += 1

    def continuations(self) -> list[dict]:
        """Kneser-Ney's counts."""
        adjusted: list[dict] = [{} for _ in range(self.order + 1)]
        adjusted[self.order] = dict(self.raw[self.order])
        for k in range(1, self.order):
            before = defaultdict(set)
            for gram in self.raw[k + 1]:
                before[gram[1:]].add(gram[0])
            for gram, count in self.raw[k].items():
                adjusted[k][gram] = count if gram[0] == BOS else max(1, len(before[gram]))
        return adjusted

    def probability(self, share: Callable, counts: list[dict], history: History, word: int) -> float:
        """u + gamma * shorter, from the longest history of at most order - 1 words."""
        history = tuple(history)[len(history) - min(len(history), self.order - 1) :]
        if not history:
            u, gamma = share(1, self._children(counts, ()), word)
            return u + gamma / self.vocab_size
        lower = self.probability(share, counts, history[1:], word)
        children = self._children(counts, history)
        if not children:
            return lower
        u, gamma = share(len(history) + 1, children, word)
        return u + gamma * lower

    @staticmethod
    def _children(counts: list[dict], history: History) -> dict:
        k = len(history) + 1
        return {gram[-1]: count for gram, count in counts[k].items() if gram[:-1] == history and count > 0}


def kneser_ney_share(discounts: list) -> Callable:
    def share(k: int, children: dict, word: int) -> tuple[float, float]:
        total = sum(children.values())
        taken = [discounts[k - 1][min(count, 3) - 1] for count in children.values()]
        count = children.get(word, 0)
        u = (count - discounts[k - 1][min(count, 3) - 1]) / total if count else 0.0
        return u, sum(taken) / total

    return share


def witten_bell_share(k: int, children: dict, word: int) -> tuple[float, float]:
    total, types = sum(children.values()), len(children)
    return children.get(word, 0) / (total + types), types / (total + types)
