"""The rows, in the order of the table: name, figure to hit, and the seconds of a short run and of a release's run."""

from __future__ import annotations

from reliability.damage import flipped_bits
from reliability.degenerate import degenerate
from reliability.faults import full_disk, nth_fault
from reliability.fuzz import fuzz
from reliability.guards import golden_curves, old_models
from reliability.killing import every_event, exact_resume, random_kills
from reliability.memory import huge
from reliability.numbers import not_numbers
from reliability.row import Row
from reliability.serving import no_code, served
from reliability.several import killed_ranks, parity
from reliability.texts import malformed

_KILLS = "200 kills (full: 2,000): 0 unreadable, 0 steps back"
_EVENTS = "all of an LSTM, a seq2seq and a tagger go on to the same weights; at most one interval lost, no litter"
_RESUME = "36/36: weights, optimiser, random state and losses equal to the bit"
_CURVES = "100 steps of every family equal to the bit; 1e-4 on another torch"
_RANKS = "20 kills: one restart each, weights equal to the undisturbed run"
_FULL = "40/40 sizes: exit 74 and one line, the checkpoint intact, nothing stray"
_FUZZ = "100,000 mutations (full: 5 million): 0 crashes, 0 hangs, 0 raw tracebacks"
_TEXTS = "10,000 texts and 50 nasties: file, line and byte, or replaced; bytes come back"
_HUGE = "a 1 GiB line and 10^7 distinct words: done, or refused within 60 s; under 1.5 GiB"
_CORPORA = "25/25: a result or an error, no NaN, probabilities sum to 1 ± 1e-6"
_OVERLOAD = "429 in < 100 ms, no other status, admitted p99 <= 2x, back in 2 s"
_LIMITS = "every bad request 4xx, none 500; 500 made from the schema for each operation"
_CODE = "2,000 names: 0 opens outside; 30 pickles refused; tests under an audit hook: 0 breaches"

ROWS = (
    Row(1, "kill -9 while checkpoints are written", _KILLS, random_kills, 40, 400, is_alone=False),
    Row(2, "kill at every file event", _EVENTS, every_event, 170, 300),
    Row(3, "exact resume", _RESUME, exact_resume, 50, 100),
    Row(4, "golden loss curves", _CURVES, golden_curves, 40, 60, is_alone=False),
    Row(5, "models of past releases", "every model loads and answers as it did", old_models, 30, 40, is_alone=False),
    Row(6, "a process of torchrun dies", _RANKS, killed_ranks, 100, 140),
    Row(7, "two processes learn what one does", "losses within 1e-5 over 100 steps", parity, 20, 30),
    Row(8, "disk full", _FULL, full_disk, 30, 60, is_alone=False),
    Row(9, "Nth I/O fault", "every operation in every way: old state or new", nth_fault, 10, 20, is_alone=False),
    Row(
        10,
        "NaN and infinity",
        "10/10 sites found within a step, the best checkpoint kept",
        not_numbers,
        10,
        20,
        is_alone=False,
    ),
    Row(11, "corrupt files", _FUZZ, fuzz, 60, 760),
    Row(12, "silent corruption", "1,000/1,000 flipped bits found at load", flipped_bits, 30, 60, is_alone=False),
    Row(13, "malformed text", _TEXTS, malformed, 30, 120, is_alone=False),
    Row(14, "huge line, huge vocabulary", _HUGE, huge, 40, 60),
    Row(15, "degenerate corpora", _CORPORA, degenerate, 20, 30, is_alone=False),
    Row(16, "overload", _OVERLOAD, served("overload", grows=True), 20, 90),
    Row(
        17,
        "held streams",
        "500 streams: all complete and in order, /healthz p99 < 250 ms, < 300 MB",
        served("held", grows=True),
        30,
        100,
    ),
    Row(
        18,
        "slow clients",
        "1,200: closed within 10 s (readers 30 s), a good client's p99 < 300 ms",
        served("slow"),
        50,
        60,
    ),
    Row(19, "request limits", _LIMITS, served("limits", grows=True), 40, 300, is_alone=False),
    Row(
        20,
        "disconnects and leaks",
        "1,000 gone: 0 slots leaked; 10,000 requests: memory and descriptors level",
        served("disconnects", "soak"),
        40,
        120,
    ),
    Row(21, "shutdown", "50 times: drained within 10 s, exit 0", served("shutdown"), 90, 120),
    Row(22, "browser attacks", "foreign Host and Origin refused everywhere", served("browser"), 15, 20, is_alone=False),
    Row(23, "keys", "401 without the key on every route", served("key"), 15, 20, is_alone=False),
    Row(24, "paths, code in files", _CODE, no_code, 30, 900, is_alone=False),
    Row(
        25,
        "client contract",
        "openai and lm-eval equal to offline; streamed text the same for 1,000 seeds",
        served("contract"),
        60,
        150,
        is_alone=False,
    ),
    Row(26, "start-up", "--help < 300 ms, serve < 4 s", served("startup"), 15, 20),
)
