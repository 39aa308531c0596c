"""`elman import HF_DIR`: a causal language model in Hugging Face's layout on disk becomes one of ours.

Nothing is downloaded, no code that comes with a model is run, and no pickle is read.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from elman.core.errors import DataError, MissingError, UsageError
from elman.tasks.lm.counting import saved
from elman.tasks.lm.families.hf import HfConfig
from elman.tasks.lm.model import Model
from elman.tasks.lm.record import LmDataConfig, LmRecord
from elman.text.units.foreign import ForeignTokenizer, read_foreign
from elman.text.units.pipelines import TOKENIZER_FILE
from elman.text.units.tokenizer import Tokenizer

MAX_CONTEXT = 2048  # where it is not asked for; the keys and values of every row are kept for so many tokens
CHECKED_TOKENS = 24
TOLERANCE = 1e-3  # nats by which reading in pieces may differ from the library's own pass, in float32
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
LEFT_OUT = ("auto_map", "_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures")


def import_hf(directory: Path, *, out: Path | None, context: int | None, command: str | None) -> Model:
    """Make a model of config.json, model.safetensors and tokenizer.json."""
    from elman.tasks.lm.families.hf_net import HfModel

    began = time.perf_counter()
    _check_files(directory)
    foreign = read_foreign((directory / TOKENIZER_FILE).read_bytes())
    tokenizer = _checked(foreign)
    net = _load_net(directory)
    if foreign.ids.max() >= net.config.vocab_size:
        raise DataError(
            f"{directory}: its tokenizer has ids up to {foreign.ids.max():,}, its net knows {net.config.vocab_size:,}",
            code="unsupported-model",
            hint="do both belong together?",
        )
    settings = {key: value for key, value in net.config.to_dict().items() if key not in LEFT_OUT}
    config = HfConfig(
        architecture=settings | {"model_type": net.config.model_type},
        start=_start_id(net.config, foreign.newline_id),
        context=_context(net.config, context),
    )
    lm = HfModel(config, net, foreign.ids)
    _verify(lm)
    record = LmRecord(
        vocab_size=tokenizer.vocab_size,
        data=LmDataConfig.model_validate({"units": tokenizer.units}),
        model=config,
        seed=0,
        seconds=round(time.perf_counter() - began, 3),
        command=command,
    )
    return saved(Model(record, tokenizer, lm), out)


def _check_files(directory: Path) -> None:
    """Refuse what cannot be read, or must not be."""
    for name in ("config.json", TOKENIZER_FILE):
        if not (directory / name).is_file():
            hint = "a model in Hugging Face's layout has config.json, model.safetensors and tokenizer.json"
            raise MissingError(f"there is no {name} in {directory}", code="no-model", hint=hint)
    if not list(directory.glob("*.safetensors")):
        pickled = sorted(path.name for kind in PICKLES for path in directory.glob(kind))
        if pickled:
            hint = "a pickle can run any code: where you trust it, AutoModelForCausalLM…save_pretrained(NEW) writes safetensors"
            raise DataError(
                f"the weights in {directory} are a pickle ({pickled[0]}), which is not read",
                code="unsupported-model",
                hint=hint,
            )
        raise MissingError(
            f"there is no model.safetensors in {directory}",
            code="no-model",
            hint="copy the model again, all of its files",
        )


def _checked(foreign: ForeignTokenizer) -> Tokenizer:
    """The tokenizer as it will come back from its files."""
    files = Tokenizer(foreign.spec).files()
    return Tokenizer.from_files(files.__getitem__)


def _load_net(directory: Path) -> Any:
    """The library's model, all of its weights from the file, in single precision."""
    import torch
    from safetensors import SafetensorError

    from elman.tasks.lm.families.hf_net import library

    try:
        net, found = library().AutoModelForCausalLM.from_pretrained(
            directory,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            dtype=torch.float32,
        )
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        first = str(error).strip().splitlines()[0]
        hint = "causal language models that the Transformers library has itself are read; no code of a model's own"
        raise DataError(
            f"{directory} is no model that can be read: {first[:200]}", code="unsupported-model", hint=hint
        ) from None
    absent = [*found["missing_keys"], *found["mismatched_keys"]]
    if absent:
        raise DataError(
            f"{directory} lacks {len(absent)} of its weights, {absent[0]} first",
            code="unsupported-model",
            hint="is it whole?",
        )
    return net


def _start_id(config: Any, newline_id: int) -> int:
    """What it has read before a text: its beginning-of-text symbol, or the end of another, or else a newline."""
    for given in (config.bos_token_id, config.eos_token_id):
        first = given[0] if isinstance(given, list) and given else given
        if isinstance(first, int) and 0 <= first < config.vocab_size:
            return first
    return newline_id


def _context(config: Any, asked: int | None) -> int:
    """Tokens in a window: as many as it has positions for and attends to, or fewer."""
    limits = [getattr(config, name, None) for name in ("max_position_embeddings", "sliding_window")]
    most = min([limit for limit in limits if isinstance(limit, int) and limit > 1], default=MAX_CONTEXT)
    if asked is not None and asked > most:
        raise UsageError(
            f"a context of {asked:,} is more than the model's {most:,}",
            code="bad-value",
            hint=f"--context {most} or less",
        )
    return min(most, MAX_CONTEXT) if asked is None else asked


def _verify(lm: Any) -> None:
    """Refuse a model whose cache does not do as the whole text does: in pieces, and among rows of another length."""
    import torch

    size = min(CHECKED_TOKENS, lm.config.context - 1)
    tokens = np.random.default_rng(0).choice(np.flatnonzero(lm.ids >= 0), size=(1, size))
    with torch.inference_mode():
        read = torch.from_numpy(np.concatenate([[lm.config.start], lm.ids[tokens[0]]]))[None]
        logits = lm.net(input_ids=read).logits[0, :-1]
        total = logits[:, torch.from_numpy(lm.ids[lm.ids >= 0])].logsumexp(dim=-1)
        whole = (logits.gather(1, read[0, 1:, None])[:, 0] - total).numpy()
    half = size // 2
    first, state = lm.score(tokens[:, :half], np.array([half]), lm.start(1))
    rest, _ = lm.score(
        np.concatenate([tokens[:, half:]] * 2), np.array([size - half, 1]), lm.join([state, lm.start(1)])
    )
    apart = np.abs(np.concatenate([first[0], rest[0]]) - whole).max()
    if not apart <= TOLERANCE:
        raise DataError(
            f"in pieces this model reads otherwise than in one pass, by {apart:.3g} nats",
            code="unsupported-model",
            hint="only models that keep keys and values of all tokens can be imported",
        )
