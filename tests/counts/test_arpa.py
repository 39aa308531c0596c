"""ARPA files: by hand, against KenLM itself, against the definition, and broken in every way we could think of."""

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.core.errors import DataError, MissingError, UsageError, WriteError
from elman.counts import arpa_lines
from elman.counts.arpa import read_arpa, write_arpa
from elman.counts.scratch import Scratch
from elman.testing import LAWS
from elman.text.units.chunks import join_chunks
from tests.counts.fitting import kneser_ney, smoothed

DATA = Path(__file__).parent.parent / "data"
FIXTURE = DATA / "kenlm-order3.arpa"  # see README.md there for the command
TEXT = DATA / "kenlm-order3.txt"
LN10 = math.log(10)

TINY = r"""\data\
ngram 1=5
ngram 2=3
ngram 3=1

\1-grams:
-1.5	<unk>
-99	<s>	-0.5
-0.5	</s>
-0.7	a	-0.3
-0.9	b	-0.2

\2-grams:
-0.2	<s> a	-0.1
-0.4	a b	-0.6
-0.3	b </s>

\3-grams:
-0.05	<s> a b

\end\
"""

# After pruning by other tools: `b c` and `a b` are gone, but what they are a suffix and a prefix of is not.
MISSING_SUFFIX = r"""\data\
ngram 1=6
ngram 2=5
ngram 3=2

\1-grams:
-2	<unk>
-99	<s>	-0.5
-0.5	</s>	0
-0.7	a	-0.3
-0.9	b	-0.2
-1.1	c	-0.4

\2-grams:
-0.2	<s> a	-0.1
-0.4	a b	-0.6
-0.3	c </s>
-0.45	b a	-0.35
-0.55	c a	-0.05

\3-grams:
-0.05	<s> a b
-0.15	a b c

\end\
"""
MISSING_PREFIX = r"""
\data\
ngram 1=6
ngram 2=2
ngram 3=1
ngram 4=2

\1-grams:
-2	<unk>
-99	<s>	-0.5
-0.5	</s>
-0.7	a	-0.3
-0.9	b	-0.2
-1.1	c	-0.4

\2-grams:
-0.2	<s> a	-0.1
-0.3	c </s>	-0.7

\3-grams:
-0.15	a b c	-0.25

\4-grams:
-0.01	<s> b c a
-0.02	a b c </s>

\end\
"""


@pytest.fixture
def kenlm():
    return pytest.importorskip("kenlm", reason="KenLM is the oracle here: pip install ufal-kenlm, or elman[test]")


def put(tmp_path, text):
    path = tmp_path / "some.arpa"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def log10s(tokens, model, words):
    """The model's log10 of each word of a line and of its end."""
    ids = np.array([[*(tokens.index(word) if word in tokens else 0 for word in words), 1]])
    return model.score(ids, np.array([ids.shape[1]]), model.start(1))[0][0].astype(np.float64) / LN10


def definition(text, words):
    """The same from the lines of the file: the longest n-gram that is there, and the back-offs of longer histories."""
    grams = {}
    for line in text.splitlines():
        if line.startswith("-"):
            log_prob, gram, *backoff = line.split("\t")
            grams[tuple(gram.split())] = (float(log_prob), float(backoff[0]) if backoff else 0.0)

    def score(history, word):
        if (*history, word) in grams:
            return grams[(*history, word)][0]
        return (grams[history][1] if history in grams else 0.0) + score(history[1:], word)

    known = [word if (word,) in grams else "<unk>" for word in words]
    line = ["<s>", *known, "</s>"]
    return [score(tuple(line[:i]), line[i]) for i in range(1, len(line))]


def random_lines(words, rng, count=200):
    return [[str(word) for word in rng.choice(words, size=rng.integers(0, 10))] for _ in range(count)]


def test_a_file_written_by_hand(tmp_path):
    tokens, model = read_arpa(put(tmp_path, TINY))
    assert tokens == ["<unk>", "</s>", "a", "b"]
    assert (model.vocab_size, model.order, model.reset_lines) == (4, 3, True)
    # <s> a b is there as a whole; then b </s> after the unknown history a b: -0.6 - 0.3
    np.testing.assert_allclose(log10s(tokens, model, ["a", "b"]), [-0.2, -0.05, -0.6 - 0.3], atol=1e-6)
    # <s> backs off to b; b and then a have no bigram b b, so -0.2 - 0.9; b </s> is there
    np.testing.assert_allclose(log10s(tokens, model, ["b", "b"]), [-0.5 - 0.9, -0.2 - 0.9, -0.3], atol=1e-6)
    # an unknown word has no back-off, and after it nothing is known
    np.testing.assert_allclose(log10s(tokens, model, ["z", "a"]), [-0.5 - 1.5, -0.7, -0.3 - 0.5], atol=1e-6)
    predicted = model.predict(model.start(1))[0].astype(np.float64) / LN10
    np.testing.assert_allclose(predicted, [-0.5 - 1.5, -0.5 - 0.5, -0.2, -0.5 - 0.9], atol=1e-6)


@pytest.mark.parametrize("block", [30, 1000, 1 << 20])
def test_the_size_of_blocks_changes_nothing(block, monkeypatch):
    whole = read_arpa(FIXTURE)
    monkeypatch.setattr(arpa_lines, "BLOCK_BYTES", block)
    tokens, model = read_arpa(FIXTURE)
    assert tokens == whole[0]
    for name, tensor in model.tensors().items():
        np.testing.assert_array_equal(tensor, whole[1].tensors()[name])


def test_gzip_and_windows_line_ends_are_read_like_plain_text(tmp_path):
    plain = read_arpa(put(tmp_path, TINY))
    for other in (gzip.compress(TINY.encode()), TINY.replace("\n", "\r\n"), "\n# a comment\n" + TINY.rstrip("\n")):
        tokens, model = read_arpa(put(tmp_path, other))
        assert tokens == plain[0]
        for name, tensor in model.tensors().items():
            np.testing.assert_array_equal(tensor, plain[1].tensors()[name])


def test_kenlm_scores_its_own_file_as_we_do(kenlm):
    oracle, (tokens, model) = kenlm.Model(str(FIXTURE)), read_arpa(FIXTURE)
    for words in random_lines([*tokens[2:], "neverseen", "<unk>"], np.random.default_rng(3)):
        expected = [score for score, _, _ in oracle.full_scores(" ".join(words))]
        np.testing.assert_allclose(log10s(tokens, model, words), expected, atol=1e-5)


def test_lines_of_the_text_score_as_kenlm_scores_them(kenlm):
    oracle, (tokens, model) = kenlm.Model(str(FIXTURE)), read_arpa(FIXTURE)
    for line in TEXT.read_text().splitlines():
        expected = [score for score, _, _ in oracle.full_scores(line)]
        np.testing.assert_allclose(log10s(tokens, model, line.split()), expected, atol=1e-5)


def test_all_lines_at_once_score_as_each_alone():
    tokens, model = read_arpa(FIXTURE)
    lines = [[tokens.index(w) for w in line.split()] for line in TEXT.read_text().splitlines()]
    lengths = np.array([len(line) for line in lines])
    padded = np.array([line + [0] * (lengths.max() - len(line)) for line in lines])
    together, _ = model.score(padded, lengths, model.start(len(lines)))
    for line, scores in zip(lines, together, strict=True):
        alone, _ = model.score(np.array([line]), np.array([len(line)]), model.start(1))
        np.testing.assert_allclose(scores[: len(line)], alone[0], atol=1e-6)


def test_our_kneser_ney_is_kenlms():
    """The same text, counted and smoothed here, gives every n-gram, probability and back-off of KenLM's file.

    KenLM counts <unk> among the words though it never occurs; so does our vocabulary.
    """
    tokens, theirs = read_arpa(FIXTURE)
    ids = np.array([tokens.index(w) for line in TEXT.read_text().splitlines() for w in (*line.split(), "</s>")])
    with Scratch() as scratch:
        ours = kneser_ney(
            ids.astype(np.uint16), order=3, vocab_size=len(tokens), reset_lines=True, scratch=scratch
        ).tensors()
    for name, tensor in theirs.tensors().items():
        np.testing.assert_allclose(ours[name], tensor, atol=3e-6, err_msg=name)


@pytest.mark.parametrize(
    ("fit", "options"),
    [
        (kneser_ney, {"order": 2}),
        (kneser_ney, {"order": 4, "prune": (0, 0, 1, 1)}),
        (smoothed, {"order": 3, "smoothing": "witten-bell"}),
        (smoothed, {"order": 3, "smoothing": "interpolated"}),
    ],
    ids=["mkn", "mkn pruned", "witten-bell", "interpolated"],
)
def test_kenlm_scores_our_models_as_we_do(fit, options, tmp_path, kenlm):
    tokens, path = read_arpa(FIXTURE)[0], tmp_path / "ours.arpa"
    lines = [line.split() for line in TEXT.read_text().splitlines()]
    ids = np.array([tokens.index(word) for line in lines for word in (*line, "</s>")], np.uint16)
    with Scratch() as scratch:
        model = fit(ids, vocab_size=len(tokens), reset_lines=True, scratch=scratch, **options)
    write_arpa(model, tokens, path)
    oracle = kenlm.Model(str(path))
    for words in [*random_lines([*tokens[2:], "neverseen"], np.random.default_rng(4)), *lines[:50]]:
        expected = [score for score, _, _ in oracle.full_scores(" ".join(words))]
        np.testing.assert_allclose(log10s(tokens, model, words), expected, atol=3e-6)


def test_a_missing_suffix_scores_as_in_kenlm(tmp_path, kenlm):
    path = put(tmp_path, MISSING_SUFFIX)
    oracle, (tokens, model) = kenlm.Model(str(path)), read_arpa(path)
    for words in [["a", "b", "c"], ["a", "b", "c", "a"], *random_lines(["a", "b", "c"], np.random.default_rng(5))]:
        expected = [score for score, _, _ in oracle.full_scores(" ".join(words))]
        np.testing.assert_allclose(definition(MISSING_SUFFIX, words), expected, atol=1e-5)
        np.testing.assert_allclose(log10s(tokens, model, words), expected, atol=1e-5)


def test_a_missing_prefix_changes_no_score(tmp_path):
    """KenLM refuses such files; what they mean is clear all the same."""
    tokens, model = read_arpa(put(tmp_path, MISSING_PREFIX))
    assert [model.trie.num_nodes(k) for k in (1, 2, 3, 4)] == [6, 4, 2, 2]  # + `<s> b`, `a b`, `<s> b c`
    for words in [["b", "c", "a"], ["a", "b", "c"], *random_lines(["a", "b", "c"], np.random.default_rng(6))]:
        np.testing.assert_allclose(log10s(tokens, model, words), definition(MISSING_PREFIX, words), atol=1e-5)


@settings(max_examples=50)
@given(st.data())
def test_any_set_of_ngrams_scores_as_defined(tmp_path_factory, data):
    """Prefixes and suffixes may all be missing."""
    words = ["a", "b", "c", "</s>"]
    text = [
        "\\1-grams:",
        "-2\t<unk>",
        "-99\t<s>\t-0.4",
        *(f"-{0.5 + i / 10:.1f}\t{w}\t-0.{i}" for i, w in enumerate(words)),
    ]
    counts = [6]
    for order in (2, 3, 4):
        gram = st.tuples(
            st.sampled_from(["<s>", "a", "b", "c"]), *[st.sampled_from("abc")] * (order - 2), st.sampled_from(words)
        )
        grams = data.draw(st.lists(gram, max_size=12, unique=True))
        text += ["", f"\\{order}-grams:"]
        text += [f"-0.{i + 1}\t{' '.join(g)}" + (f"\t-0.{i % 4}" if order < 4 else "") for i, g in enumerate(grams)]
        counts.append(len(grams))
    text = "\n".join(
        ["\\data\\", *(f"ngram {k}={n}" for k, n in enumerate(counts, start=1)), "", *text, "", "\\end\\", ""]
    )
    tokens, model = read_arpa(put(tmp_path_factory.getbasetemp(), text))
    for line in data.draw(st.lists(st.lists(st.sampled_from("abcz"), max_size=8), min_size=1, max_size=5)):
        np.testing.assert_allclose(log10s(tokens, model, line), definition(text, line), atol=1e-5)


def test_a_file_without_unk_makes_unknown_words_very_unlikely(tmp_path, kenlm):
    path = put(tmp_path, TINY.replace("ngram 1=5", "ngram 1=4").replace("-1.5	<unk>\n", ""))
    tokens, model = read_arpa(path)
    assert tokens == ["<unk>", "</s>", "a", "b"]
    found = log10s(tokens, model, ["z"])
    np.testing.assert_allclose(found, [-0.5 - 100, -0.5], atol=1e-4)
    np.testing.assert_allclose(found, [s for s, _, _ in kenlm.Model(str(path)).full_scores("z")], atol=1e-4)
    write_arpa(model, tokens, path, overwrite=True)
    np.testing.assert_allclose(log10s(*read_arpa(path), ["z"]), found)


def test_unk_in_capitals_is_unk(tmp_path):
    text = TINY.replace("<unk>", "<UNK>").replace("-0.3	b </s>", "-0.3	b <UNK>")
    tokens, model = read_arpa(put(tmp_path, text))
    assert tokens == ["<unk>", "</s>", "a", "b"]
    np.testing.assert_allclose(log10s(tokens, model, ["b", "z"])[1], -0.3, atol=1e-6)


def test_ngrams_with_a_start_inside_are_dropped(tmp_path):
    text = TINY.replace("ngram 2=3", "ngram 2=4").replace("ngram 3=1", "ngram 3=2")
    text = text.replace("-0.3	b </s>", "-0.3	b </s>\n-0.1	a <s>	-0.1").replace(
        "<s> a b\n", "<s> a b\n-0.1	a <s> b\n"
    )
    _, model = read_arpa(put(tmp_path, text))
    expected = read_arpa(put(tmp_path, TINY))[1]
    for name, tensor in model.tensors().items():
        np.testing.assert_array_equal(tensor, expected.tensors()[name])


def test_empty_orders_and_a_unigram_file_are_read(tmp_path):
    text = TINY.replace("ngram 2=3", "ngram 2=0").replace("ngram 3=1", "ngram 3=0").split("\\2-grams:")[0]
    tokens, model = read_arpa(put(tmp_path, text + "\\2-grams:\n\n\\3-grams:\n\n\\end\\\n"))
    np.testing.assert_allclose(log10s(tokens, model, ["a"]), [-0.5 - 0.7, -0.3 - 0.5], atol=1e-6)
    unigrams = "\\data\\\nngram 1=3\n\n\\1-grams:\n-1\t<unk>\n-0.5\t</s>\n-0.2\ta\n\n\\end\\\n"
    tokens, model = read_arpa(put(tmp_path, unigrams))
    assert model.order == 1
    np.testing.assert_allclose(log10s(tokens, model, ["a"]), [-0.2, -0.5], atol=1e-6)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_laws_hold_for_an_imported_model(law):
    law(read_arpa(FIXTURE)[1], np.random.default_rng(7), 1e-5)


def test_writing_and_reading_gives_the_same_model(tmp_path):
    tokens, model = read_arpa(FIXTURE)
    write_arpa(model, tokens, tmp_path / "again.arpa")
    again, other = read_arpa(tmp_path / "again.arpa")
    assert again == tokens
    for name, tensor in model.tensors().items():
        np.testing.assert_allclose(other.tensors()[name], tensor, rtol=1e-7)
    assert "\n0\t<s>\t" in (tmp_path / "again.arpa").read_text()  # as KenLM has it


def test_a_probability_of_zero_is_written_as_srilm_writes_it(tmp_path, kenlm):
    tokens, model = read_arpa(FIXTURE)
    model.log_probs[1][0] = model.backoffs[1][0] = -np.inf
    write_arpa(model, tokens, tmp_path / "zero.arpa")
    kenlm.Model(str(tmp_path / "zero.arpa"))
    assert read_arpa(tmp_path / "zero.arpa")[1].log_probs[1][0] == pytest.approx(-99 * LN10)


REFUSED = {
    "": "is empty, expected .data.",
    "\n\n": "ends after line 2",
    "mmap lm http://kheafield.com/code\x00": "line 1 .* KenLM binary",
    "a text\n": "line 1 .* is 'a text', not .data",
    "\\data\\\n": "ends after line 1",
    "\\data\\\n\n": "line 2 .* without an `ngram 1=",
    "\\data\\\nngram 1=x\n": "line 2 .* expected something like",
    "\\data\\\nngram 1=99999999999999999999999999\n": "line 2 .* expected something like",
    "\\data\\\nngram 2=3\n": "line 2 .* counts 2-grams.*consecutive",
    "\\data\\\nngram 1=1\nngram 3=1\n": "line 3 .* counts 3-grams.*consecutive",
    "\\data\\\n" + "".join(f"ngram {k}=1\n" for k in range(1, 30)): "line 22 .* order 21",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items(), ids=range(len(REFUSED)))
def test_what_is_no_arpa_file_is_refused(text, message, tmp_path):
    with pytest.raises(DataError, match=message) as error:
        read_arpa(put(tmp_path, text))
    assert error.value.hint


BROKEN = [
    ("\\1-grams:", "\\2-grams:", r"line 6 .* is '\\\\2-grams:', not .1-grams:"),
    ("-0.7	a	-0.3", "0.7	a	-0.3", "line 10 .* positive log-probability 0.7"),
    ("-0.7	a	-0.3", "nan	a	-0.3", "line 10 .* log-probability that is not a number"),
    ("-0.7	a	-0.3", "-inf	a	-0.3", "line 10 .* log-probability that is not a number"),
    ("-0.7	a	-0.3", "-1e39	a	-0.3", "line 10 .* log-probability that is not a number"),
    ("-0.7	a	-0.3", "-0_7	a	-0.3", "line 10 .* log-probability that is not a number"),
    ("-0.7	a	-0.3", "-0.7	a	inf", "line 10 .* back-off that is not a number"),
    ("-0.7	a	-0.3", "-0.7	a	-0.3x", "line 10 .* back-off that is not a number"),
    ("-0.7	a	-0.3", "-0.7	a	--0.3", "line 10 .* back-off that is not a number"),
    ("-0.7	a	-0.3", "-0.7	a	-0.3.1", "line 10 .* back-off that is not a number"),
    ("-0.7	a	-0.3", "-0.7", "line 10 .* has 1 fields: a 1-gram has 2 or 3"),
    ("-0.7	a	-0.3", "-0.7	a	-0.3	4", "line 10 .* has 4 fields"),
    ("-0.7	a	-0.3", "-0.7	</s>	-0.3", "line 10 .* repeats the word '</s>'"),
    ("-0.7	a	-0.3", "-0.7	<UNK>	-0.3", "line 10 .* repeats the word '<UNK>'"),
    ("-0.7	a	-0.3", "-0.7	a\0	-0.3", "line 10 .* contains a NUL"),
    ("-0.5	</s>\n", "-0.5	end\n", "line 11 .* ends the 1-grams without </s>"),
    ("-0.4	a b	-0.6", "-0.4	a c	-0.6", "line 15 .* the word 'c', which is not among the 1-grams"),
    ("-0.4	a b	-0.6", "-0.4	b </s>	-0.6", "line 16 .* repeats the n-gram 'b </s>' of line 15"),
    ("-0.4	a b	-0.6", "-0.4	a b b	-0.6", "line 15 .* has 5 fields: a 2-gram has 3 or 4"),
    ("-0.4	a b	-0.6\n", "", "line 15 .* ends the 2-grams after 2, but .data. declares 3"),
    (
        "-0.4	a b	-0.6\n",
        "-0.4	a b	-0.6\n-0.4	a a\n",
        "line 17 .* ends the 2-grams after 4, but .data. declares 3",
    ),
    ("-0.4	a b	-0.6\n", "\n-0.4	a b	-0.6\n", "line 14 .* ends the 2-grams after 1, but .data. declares 3"),
    ("-0.05	<s> a b", "-0.05	<s> a b	-0.5", "line 19 .* back-off -0.5, but 3 is the highest order"),
    ("\\end\\\n", "", "ends after line 20, expected .end."),
    ("\\end\\\n", "\\4-grams:\n", "line 21 .* not .end"),
    ("\\end\\\n", "\\end\\\nmore\n", "line 22 .* 'more', but nothing may follow"),
]


@pytest.mark.parametrize(("old", "new", "message"), BROKEN, ids=range(len(BROKEN)))
def test_a_broken_line_is_named(old, new, message, tmp_path):
    assert TINY.count(old) == 1
    with pytest.raises(DataError, match=message) as error:
        read_arpa(put(tmp_path, TINY.replace(old, new)))
    assert error.value.hint
    assert "some.arpa" in error.value.what


def test_a_back_off_of_zero_on_the_highest_order_is_no_back_off(tmp_path):
    tokens, model = read_arpa(put(tmp_path, TINY))
    again_tokens, again = read_arpa(put(tmp_path, TINY.replace("-0.05	<s> a b", "-0.05	<s> a b	0")))
    assert again_tokens == tokens
    tensors = model.tensors()
    assert again.tensors().keys() == tensors.keys()
    for name, array in again.tensors().items():
        np.testing.assert_array_equal(array, tensors[name])


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80"])
def test_a_word_that_is_not_utf8_is_named(bad, tmp_path):
    with pytest.raises(DataError, match=r"line 11 .* UTF-8"):
        read_arpa(put(tmp_path, TINY.encode().replace(b"-0.9\tb", b"-0.9\tb" + bad)))


def test_an_endless_line_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(arpa_lines, "BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(arpa_lines, "MAX_LINE", 1 << 12)
    with pytest.raises(DataError, match=r"line 3 .* longer"):
        read_arpa(put(tmp_path, "\\data\\\nngram 1=1\n" + "x" * 10_000))


@pytest.mark.parametrize("cut", [1, 10, 40, 100])
def test_a_corrupt_gzip_file_is_refused(cut, tmp_path):
    packed = gzip.compress(TINY.encode())
    damaged = packed[:20] + bytes([packed[20] ^ 255]) + packed[21:]
    for broken in (packed[:-cut], damaged, packed[:2] + bytes(30)):
        with pytest.raises(DataError):
            read_arpa(put(tmp_path, broken))


def test_a_missing_file_and_a_directory_are_not_there_to_be_read(tmp_path):
    for path in (tmp_path / "none.arpa", tmp_path):
        with pytest.raises(MissingError, match="cannot read"):
            read_arpa(path)


@settings(max_examples=300)
@given(st.data())
def test_no_mutation_of_bytes_leads_to_anything_but_a_message_or_a_model(tmp_path_factory, data):
    text = bytearray(data.draw(st.sampled_from([TINY, MISSING_SUFFIX, MISSING_PREFIX])).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        old = data.draw(st.integers(0, 12))
        known = st.sampled_from(
            [b"-", b"1e", b"0", b"9", b"\t", b" ", b"\n", b"\\", b"<s>", b"</s>", b"a", b"=", b"\r", b""]
        )
        text[at : at + old] = data.draw(st.one_of(known, st.binary(max_size=4)))
    packed = data.draw(st.booleans())
    path = put(tmp_path_factory.getbasetemp(), gzip.compress(bytes(text), 1) if packed else bytes(text))
    try:
        tokens, model = read_arpa(path)
    except DataError as error:
        assert error.hint
        return
    assert tokens[:2] == ["<unk>", "</s>"]
    lines = np.random.default_rng(0).integers(0, len(tokens), size=(20, 6))
    nats, state = model.score(lines, np.full(20, 6), model.start(20))
    predicted = model.predict(state)
    for numbers in (nats, predicted):
        assert (numbers <= 0).all()  # and so no NaN; the sum need not be one


@settings(max_examples=200)
@given(st.lists(st.floats(-1e5, 1e5), min_size=1), st.sampled_from(["%.8g", "%.6f", "%r", "%.3e", "%.12g", "%d"]))
def test_numbers_are_read_as_float_reads_them(values, form):
    texts = [form % value for value in values]
    found = arpa_lines._numbers(join_chunks([text.encode() for text in texts]))
    np.testing.assert_allclose(found, [float(text) for text in texts], rtol=1e-14)


def test_only_back_off_models_of_single_lines_are_written(tmp_path):
    tokens, model = read_arpa(FIXTURE)
    ids = np.array([2, 3, 1, 3, 2, 1], np.uint16)
    out = tmp_path / "out.arpa"
    with Scratch() as scratch:
        counted = smoothed(ids, order=3, smoothing="ml", vocab_size=4, reset_lines=True, scratch=scratch)
        streamed = kneser_ney(ids, order=2, vocab_size=4, reset_lines=False, scratch=scratch)
    for other, hint in ((counted, "--model mkn"), (object(), "--model mkn"), (streamed, "--reset-lines")):
        with pytest.raises(UsageError) as error:
            write_arpa(other, ["<unk>", "</s>", "a", "b"], out)
        assert hint in error.value.hint
    for bad in ("new york", " ", "", "a\tb", "a\n", "<s>", "<UNK>", "\0"):
        with pytest.raises(UsageError, match="cannot be written to an ARPA file"):
            write_arpa(model, [*tokens[:-1], bad], out)
    assert not out.exists()


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    tokens, model = read_arpa(FIXTURE)
    out = tmp_path / "out.arpa"
    out.write_text("before")

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("elman.counts.arpa._lines_of", full)
    with pytest.raises(WriteError, match="no space"):
        write_arpa(model, tokens, out, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["out.arpa"]
    assert out.read_text() == "before"


def test_words_of_any_script_make_the_round_trip(tmp_path):
    ids = np.array([2, 3, 1, 3, 2, 1], np.uint16)
    tokens = ["<unk>", "</s>", "naïve", "日本\u3000語"]  # the space inside is none to ARPA, nor to us
    with Scratch() as scratch:
        model = kneser_ney(ids, order=2, vocab_size=4, reset_lines=True, scratch=scratch)
    write_arpa(model, tokens, tmp_path / "out.arpa")
    assert read_arpa(tmp_path / "out.arpa")[0] == tokens
