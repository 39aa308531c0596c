"""A comparison as `elman compare` writes it, made by hand: plausible numbers, and text that means no good."""

from __future__ import annotations

import copy
import math
from typing import Any

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\x01 & \"quotes\" 'n' </style>"
# name, what it looks at, perplexity, parameters, bytes, state, seconds, tokens/s, ms at 10 and 1,000
FIGURES: list[tuple[str, str, float, int, int, int | None, float, float | None, float, float]] = [
    ("unigram", "frequencies", 668.4, 10_000, 171_000, None, 0.3, None, 0.021, 0.021),
    ("bigram", "1 word back", 251.9, 298_000, 3_100_000, None, 0.9, None, 0.034, 0.035),
    ("ngram", "2 words back", 179.1, 1_012_000, 11_800_000, None, 2.2, None, 0.041, 0.041),
    ("mkn", "4 words back", 146.7, 2_740_000, 29_000_000, None, 4.6, None, 0.052, 0.051),
    ("window", "5 words back", 139.8, 3_310_000, 13_200_000, 2_400, 84.0, 21_300, 0.31, 0.31),
    ("rnn", "all, fading", 133.1, 2_810_000, 11_200_000, 800, 95.0, 17_000, 0.33, 0.34),
    ("lstm", "all, gated", 114.2, 4_650_000, 18_600_000, 3_200, 140.0, 9_800, 0.52, 0.53),
    ("transformer", "128 words back", 121.6, 5_020_000, 20_100_000, 409_600, 141.0, 8_900, 0.88, 1.42),
    ("mkn+lstm", "both", 97.9, 7_390_000, 47_600_000, 3_200, 3.1, None, 0.58, 0.58),
]
NETS = ("window", "rnn", "lstm", "transformer")
SENTENCES = (
    ("lstm", "the company said it expects <unk> to be completed by the end of the year"),
    ("mkn", "mr. vinken is chairman of elsevier n.v. the dutch publishing group"),
    ("mkn+lstm", "analysts who had followed the trading at the new york exchange said they were n't surprised"),
    ("transformer", HOSTILE),
)


def comparison() -> dict[str, Any]:
    """A new one each time, so that a test may change it."""
    names = [row[0] for row in FIGURES]
    ppl = {row[0]: row[2] for row in FIGURES}
    return copy.deepcopy(
        {
            "schema_version": 1,
            "command": "elman compare ptb.train.txt --test ptb.test.txt --budget 10m --out compared",
            "seed": 1,
            "budget_seconds": 600,
            "seconds": 583.2,
            "versions": {"elman": "0.1.0", "python": "3.11.7", "torch": "2.10.0", "numpy": "2.2.1"},
            "data": {
                "train": ["data/ptb.train.txt"],
                "valid": "data/ptb.valid.txt",
                "test": "data/ptb.test.txt",
                "fingerprints": {"data/ptb.train.txt": "0f3b1c55a0de9917", "data/ptb.test.txt": "77aa01c2de9b4410"},
                "train_tokens": 929_589,
                "test_tokens": 82_430,
                "lines": 3_761,
            },
            "task": "lm",
            "units": "space",
            "vocab_size": 10_000,
            "signature": "elman 0.1.0 | units space | eos counted | V 10000",
            "measured_on": "test",
            "models": [_model(*row) for row in FIGURES],
            "differences": [
                {
                    "a": a,
                    "b": b,
                    "ratio": ppl[a] / ppl[b],
                    "low": ppl[a] / ppl[b] * 0.97,
                    "high": ppl[a] / ppl[b] * 1.03,
                }
                | {"significant": abs(math.log(ppl[a] / ppl[b])) > 0.06}
                for i, a in enumerate(names)
                for b in names[i + 1 :]
            ],
            "by_frequency": [
                {"from": first, "to": last, "tokens": 9_000, "nats": _nats(ppl, shift, slope)}
                for first, last, shift, slope in ((1, 10, 4.6, 0.5), (11, 100, 2.6, 0.8), (101, 1000, 1.1, 1.0))
            ]
            + [{"from": 1001, "to": None, "tokens": 47_000, "nats": _nats(ppl, -1.6, 1.0)}],
            "by_position": [
                {"from": first, "to": last, "tokens": 16_000, "nats": _nats(ppl, shift, slope)}
                for first, last, shift, slope in (
                    (1, 5, 0.5, 0.7),
                    (6, 10, 0.1, 0.9),
                    (11, 20, -0.1, 1),
                    (21, 40, -0.2, 1.1),
                )
            ],
            "lines": [
                {"text": text, "best": best, "nats": {n: math.log(ppl[n]) - 1.4 * (n == best) for n in names}}
                for best, text in SENTENCES
            ],
            "gradients": [
                {
                    "model": name,
                    "layers": [
                        {"name": "words", "by_distance": [0.4 * rate**d for d in range(100)], "faded": faded},
                        {"name": "layer 1 h", "by_distance": [0.9 * rate**d for d in range(100)], "faded": faded},
                    ],
                }
                for name, rate, faded in (("rnn", 0.72, 15), ("lstm", 0.955, None))
            ],
            "mixtures": [{"name": "mkn+lstm", "weights": {"mkn": 0.36, "lstm": 0.64}}],
            "sweep": None,
            "failed": [],
        }
    )


def _model(
    name: str,
    what: str,
    perplexity: float,
    parameters: int,
    num_bytes: int,
    state: int | None,
    seconds: float,
    speed: float | None,
    early: float,
    late: float,
) -> dict[str, Any]:
    steps = range(1, 21) if name in NETS else range(0)
    return {
        "name": name,
        "model": name,
        "what": what,
        "settings": {"model.hidden": 200},
        "command": f"elman train lm ptb.train.txt --model {name} --out compared/{name}",
        "directory": name,
        "error": None,
        "perplexity": perplexity,
        "perplexity_low": perplexity * 0.968,
        "perplexity_high": perplexity * 1.034,
        "nats_per_token": math.log(perplexity),
        "bits_per_byte": math.log(perplexity) / math.log(2) / 5.47,
        "parameters": parameters,
        "state_bytes": state,
        "bytes": num_bytes,
        "seconds": seconds,
        "tokens_per_second": speed,
        "ms_per_token_10": early,
        "ms_per_token_1000": late,
        "sample": f"the {name} of the company said <unk> it would n't be able to comment on N shares <eos>",
        "curve": [
            {"tokens": 60_000 * step, "perplexity": perplexity * (0.8 + 9 / step**1.2)}
            | ({} if step % 4 else {"valid_perplexity": perplexity * (1.02 + 5 / step**1.4)})
            for step in steps
        ],
        "tuned": "+" in name,
        "significant_next": True,
    }


def _nats(ppl: dict[str, float], shift: float, slope: float) -> dict[str, float]:
    return {name: max(0.2, 4.9 + slope * (math.log(value) - 4.9) + shift) for name, value in ppl.items()}
