"""A model of Hugging Face's layout is one of ours: it keeps the laws, and says what the library itself says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elman
from elman.core.errors import DataError
from elman.lm.protocol import FreeModel
from elman.tasks.lm.families.hf import HfConfig
from elman.tasks.lm.families.hf_net import HfModel
from elman.testing import LAWS, Law, saving_and_loading_is_exact
from elman.text.units.foreign import read_foreign
from elman.text.units.pipelines import PRETOKENIZERS
from elman.text.units.tokenizer import Tokenizer
from tests.commands import LINES, Run

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

TEXT = "I'll say: the cat's 12345 hats\tare   naïve — 東京 🙂 don't"
GPT2 = {"n_embd": 8, "n_layer": 2, "n_head": 2}
LLAMA = {
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def make_net(kind: str, *, vocab_size: int, positions: int = 32, seed: int = 0) -> Any:
    """A tiny net whose predictions depend on what it read."""
    torch.manual_seed(seed)
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=vocab_size, n_positions=positions, **GPT2)
        config.bos_token_id = config.eos_token_id = vocab_size - 1
    else:
        config = transformers.LlamaConfig(vocab_size=vocab_size, max_position_embeddings=positions, **LLAMA)
        config.bos_token_id, config.eos_token_id = vocab_size - 2, vocab_size - 1
    net = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn(weight.shape), alpha=0.4)
    return net


def make_model(kind: str, *, context: int, dtype: torch.dtype = torch.float64) -> HfModel:
    """Six symbols of its own, one of them the newline; `<unk>` and the newline's own symbol are impossible."""
    net = make_net(kind, vocab_size=6).to(dtype)
    config = HfConfig(architecture=net.config.to_dict(), start=5, context=context)
    return HfModel(config, net, np.array([-1, 3, 0, 1, 2, -1, 4, 5]))


def make_tokenizer(name: str) -> Any:
    """Byte-level BPE of a few lines, cut as a family of models cuts text."""
    library = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=name == "llama3"))
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name == "gpt2")
    cut = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PRETOKENIZERS[name]), "isolated")  # type: ignore[index]
    library.pre_tokenizer = byte_level if name == "gpt2" else tokenizers.pre_tokenizers.Sequence([cut, byte_level])
    library.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    library.train_from_iterator([*LINES, TEXT, "a\n\nb\n\nc"], trainer)
    library.add_special_tokens(["<|begin|>", "<|endoftext|>"])
    return library


@pytest.fixture(scope="module", name="directory")
def fixture_directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Models as `save_pretrained` leaves them."""

    def make(kind: str) -> Path:
        place = tmp_path_factory.mktemp("hf") / kind
        library = make_tokenizer("gpt2" if kind == "gpt2" else "llama3")
        make_net(kind, vocab_size=library.get_vocab_size()).save_pretrained(place)
        library.save(str(place / "tokenizer.json"))
        return place

    made = {kind: make(kind) for kind in ("gpt2", "llama")}
    return made.__getitem__


@pytest.fixture(scope="module", name="imported")
def fixture_imported(directory: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("imported") / "model"
    elman.import_hf(directory("gpt2"), out=out)
    return out


# ------------------------------------------------------------------------------------------------------------- the laws


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize(("kind", "context"), [("gpt2", 32), ("gpt2", 5), ("llama", 4)])
def test_it_keeps_the_law(kind: str, context: int, law: Law) -> None:
    law(make_model(kind, context=context), np.random.default_rng(0), 1e-6)


def test_in_single_precision_too() -> None:
    for law in LAWS:
        law(make_model("gpt2", context=5, dtype=torch.float32), np.random.default_rng(1), 1e-4)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_saving_and_loading_is_exact(kind: str) -> None:
    def roundtrip(lm: FreeModel[Any]) -> FreeModel[Any]:
        assert isinstance(lm, HfModel)
        config = HfConfig.model_validate_json(lm.config.model_dump_json())
        return HfModel.from_tensors(config, lm.tensors(), vocab_size=lm.vocab_size)

    saving_and_loading_is_exact(make_model(kind, context=5), np.random.default_rng(0), roundtrip=roundtrip)


def test_a_shared_weight_is_saved_once() -> None:
    names = make_model("gpt2", context=5).tensors().keys()
    assert "net.transformer.wte.weight" in names and "net.lm_head.weight" not in names


def test_a_full_window_begins_anew_with_its_last_half() -> None:
    """Context 4: the start and three tokens; then the last two again and two more; and so on. By the library alone."""
    lm = make_model("gpt2", context=4)
    tokens = np.array([[2, 6, 3, 1, 7, 2, 4, 3, 6]])
    read = [lm.config.start, *lm.ids[tokens[0]].tolist()]
    windows = [(0, 1), (0, 2), (0, 3), (0, 4), (2, 5), (2, 6), (4, 7), (4, 8), (6, 9)]
    expected = []
    for begin, end in windows:
        with torch.inference_mode():
            logits = lm.net(input_ids=torch.tensor([read[begin:end]])).logits[0, -1]
        expected.append(float(logits.log_softmax(-1)[read[end]]))
    scored, _ = lm.score(tokens, np.array([9]), lm.start(1))
    assert scored[0] == pytest.approx(expected, abs=1e-6)


# ------------------------------------------------------------------------------------------------------- the tokenizer


@pytest.mark.parametrize("name", ["gpt2", "llama3", "qwen2"])
def test_text_is_cut_as_the_library_cuts_it(name: str) -> None:
    library = make_tokenizer(name)
    foreign = read_foreign(library.to_str().encode())
    assert foreign.spec.pretokenizer == name
    tokenizer = Tokenizer(foreign.spec)
    for text in (TEXT, *LINES, "", " ", "  two spaces  ", "<|endoftext|> is a text"):
        ids = tokenizer.encode(text)
        if "<|" not in text:  # the library takes it for its symbol, we read a text
            assert foreign.ids[ids].tolist() == library.encode(text, add_special_tokens=False).ids
        assert tokenizer.decode(ids) == text
        assert tokenizer.encode_lines(f"{text}\n".encode()).tolist() == [*ids.tolist(), 1]
    again = Tokenizer.from_files(tokenizer.files().__getitem__)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()


def test_the_end_of_a_line_is_the_newline_of_that_vocabulary() -> None:
    library = make_tokenizer("gpt2")
    foreign = read_foreign(library.to_str().encode())
    assert foreign.ids[1] == foreign.newline_id == library.token_to_id("Ċ")
    assert (foreign.ids == foreign.newline_id).sum() == 1
    assert sorted(foreign.ids[foreign.ids >= 0]) == list(range(library.get_vocab_size()))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": {"type": "Unigram", "vocab": []}}, "it is Unigram, not BPE"),
        ({"normalizer": {"type": "Lowercase"}}, "it normalises text by Lowercase"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "does not cut text into bytes"),
        ({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}, "adds a space"),
        (
            {
                "pre_tokenizer": {
                    "type": "Sequence",
                    "pretokenizers": [
                        {"type": "Split", "pattern": {"Regex": "(a+)+b"}, "behavior": "Isolated", "invert": False},
                        {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
                    ],
                }
            },
            "in a way that is not known here",
        ),
    ],
)
def test_other_tokenizers_are_refused(change: dict[str, Any], why: str) -> None:
    content = json.loads(make_tokenizer("gpt2").to_str()) | change
    with pytest.raises(DataError, match=why):
        read_foreign(json.dumps(content).encode())


# --------------------------------------------------------------------------------------------------------- the commands


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_log_probabilities_are_those_of_the_library(
    directory: Callable[[str], Path], kind: str, tmp_path: Path
) -> None:
    model = elman.import_hf(directory(kind), out=tmp_path / "m")
    text = "the cat sat\non the mat"
    score = model.score(text)
    library = tokenizers.Tokenizer.from_file(str(directory(kind) / "tokenizer.json"))
    pieces = [library.encode(line, add_special_tokens=False).ids for line in text.split("\n")]
    newline = library.token_to_id("Ċ")
    read = torch.tensor([[model.record.model.start, *pieces[0], newline, *pieces[1], newline]])  # type: ignore[attr-defined]
    net = transformers.AutoModelForCausalLM.from_pretrained(directory(kind))
    with torch.inference_mode():
        log_probs = net(input_ids=read).logits[0, :-1].log_softmax(-1)
    expected = -log_probs.gather(1, read[0, 1:, None]).sum()
    assert score.nats == pytest.approx(float(expected), abs=1e-4)
    assert score.tokens == read.shape[1] - 1


def test_the_verbs_take_it(run: Run, imported: Path, corpus: Path, tmp_path: Path) -> None:
    found = run("evaluate", imported, corpus, "--json").json
    assert found["bits_per_byte"] > 0 and found["unknown_tokens"] == 0
    assert len(run("next", imported, "the cat", "--k", "3").out.splitlines()) == 3
    assert run("generate", imported, "--prompt", "the ", "--tokens", "60", "--seed", "1").code == 0
    assert run("explain", imported, "the cat sat", "--kind", "surprisal", "--out", tmp_path / "s.json").code == 0
    assert run("info", imported).code == 0
    mixed = run("mix", imported, "cache", "--valid", corpus, "--out", tmp_path / "mixed", "--json")
    assert mixed.code == 0 and mixed.json["valid"]["perplexity"] <= found["perplexity"] * 1.01
    lists = tmp_path / "n.tsv"
    lists.write_text("1\t0\tthe cat sat\n1\t0\tthe cat sits\n1\t0\tthe\n")
    assert len(run("rescore", imported, lists, "--weight", "1").out.splitlines()) == 3


def test_the_library_reads_our_tokenizer(imported: Path) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(imported)
    ours = elman.load(imported).tokenizer
    assert theirs(TEXT, add_special_tokens=False)["input_ids"] == ours.encode(TEXT).tolist()


def test_a_context_is_chosen(run: Run, directory: Callable[[str], Path], tmp_path: Path) -> None:
    assert run("import", directory("gpt2"), "--out", tmp_path / "m", "--context", "8").code == 0
    assert elman.load(tmp_path / "m").record.model.context == 8
    failed = run("import", directory("gpt2"), "--out", tmp_path / "n", "--context", "33")
    assert failed.code == 2 and "more than the model's 32" in failed.err


def test_what_cannot_be_read_is_refused(run: Run, directory: Callable[[str], Path], tmp_path: Path) -> None:
    def broken(name: str) -> Path:
        return Path(shutil.copytree(directory("gpt2"), tmp_path / name))

    pickled = broken("pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    failed = run("import", pickled, "--out", tmp_path / "m")
    assert failed.code == 65 and "a pickle (pytorch_model.bin)" in failed.err
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (place := broken(f"no {name}")).joinpath(name).unlink()
        failed = run("import", place, "--out", tmp_path / "m")
        assert failed.code == 66 and f"there is no {name}" in failed.err
    cut = broken("cut")
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:5000])
    assert run("import", cut, "--out", tmp_path / "m").code == 65
    deeper = broken("deeper")
    config = json.loads((deeper / "config.json").read_text())
    (deeper / "config.json").write_text(json.dumps(config | {"n_layer": 3}))
    failed = run("import", deeper, "--out", tmp_path / "m")
    assert failed.code == 65 and "lacks" in failed.err
    own_code = broken("own code")
    foreign = {"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "mine.Mine"}, "architectures": ["Mine"]}
    (own_code / "config.json").write_text(json.dumps(foreign))
    (own_code / "mine.py").write_text("raise SystemExit(99)\n")
    failed = run("import", own_code, "--out", tmp_path / "m")
    assert failed.code == 65 and "no code of a model's own" in failed.err
    assert not (tmp_path / "m").exists()


def test_it_is_not_trained_here(run: Run, imported: Path, corpus: Path, tmp_path: Path) -> None:
    failed = run("train", "lm", corpus, "--out", tmp_path / "m", "--model", "hf")
    assert failed.code == 2 and "elman import HF_DIR" in failed.err
    assert run("train", "lm", corpus, "--out", tmp_path / "m", "--init", imported).code == 2
