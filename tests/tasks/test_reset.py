"""`model.reset` reaches every GRU of every task's net, is written where it was given, and is refused where there is no gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch.nn import Module

from elman.core.errors import UsageError
from elman.core.settings import Config, make
from elman.nets.cells import GruLayer
from elman.nets.inputs import NetInputs
from elman.tasks.bilm.net import BilmModel
from elman.tasks.classify.config import ClassifierConfig
from elman.tasks.classify.net import ClassifierModel
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.recurrent_net import RecurrentModel
from elman.tasks.masked.config import MaskedConfig
from elman.tasks.masked.net import MaskedModel
from elman.tasks.qa.chosen_net import ChoosingNet
from elman.tasks.qa.config import ReaderConfig
from elman.tasks.qa.span_net import SpanNet
from elman.tasks.qa.written_net import WritingNet
from elman.tasks.seq2seq.config import Seq2SeqConfig
from elman.tasks.seq2seq.recurrent_net import Seq2SeqModel
from elman.tasks.tag.config import TaggerConfig
from elman.tasks.tag.net import TaggerModel

INPUTS = NetInputs(6)
NETS: dict[str, tuple[type[Config], Callable[[Any], Module]]] = {
    "lm": (RecurrentConfig, lambda config: RecurrentModel(config, INPUTS, reset_lines=False)),
    "bilm": (RecurrentConfig, lambda config: BilmModel(config, INPUTS, reset_lines=False)),
    "masked": (MaskedConfig, lambda config: MaskedModel(config, INPUTS)),
    "seq2seq": (Seq2SeqConfig, lambda config: Seq2SeqModel(config, INPUTS, source_vocab_size=5)),
    "tag": (TaggerConfig, lambda config: TaggerModel(config, INPUTS, num_characters=4, labels=["A", "B"])),
    "classify": (ClassifierConfig, lambda config: ClassifierModel(config, INPUTS, num_labels=2)),
    "qa, chosen": (ReaderConfig, lambda config: ChoosingNet(config, INPUTS, num_labels=3)),
    "qa, span": (ReaderConfig, lambda config: SpanNet(config, INPUTS)),
    "qa, written": (ReaderConfig, lambda config: WritingNet(config, INPUTS, answer_vocab_size=4)),
}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize(("given", "is_first"), [({}, False), ({"reset": "after"}, False), ({"reset": "before"}, True)])
def test_every_gru_of_a_net_resets_where_it_was_told(name: str, given: dict[str, str], is_first: bool) -> None:
    record, build = NETS[name]
    net = build(make(record, {"family": "gru", "hidden": 4, **given}, section="model"))
    layers = [module for module in net.modules() if isinstance(module, GruLayer)]
    assert layers and all(layer.reset_first is is_first for layer in layers)


@pytest.mark.parametrize("name", NETS)
def test_a_record_says_it_only_where_it_was_given(name: str) -> None:
    """So the records of version 0.1.0, which have no such key, are those of models that reset after the product."""
    record, _ = NETS[name]
    plain, chosen = (make(record, {"family": "gru", **given}, section="model") for given in ({}, {"reset": "before"}))
    assert "reset" not in plain.model_dump(mode="json")
    assert record.model_validate_json(plain.model_dump_json()) == plain
    assert record.model_validate_json(chosen.model_dump_json()) == chosen
    assert chosen.model_dump(mode="json")["reset"] == "before"


@pytest.mark.parametrize("family", ["rnn", "lstm"])
@pytest.mark.parametrize("name", NETS)
def test_other_cells_have_no_reset(name: str, family: str) -> None:
    with pytest.raises(UsageError, match=f"reset is for gru, not for {family}"):
        make(NETS[name][0], {"family": family, "reset": "after"}, section="model")
