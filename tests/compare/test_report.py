"""report.html says what was found, truly, whatever it was; text out of corpora cannot harm it; it stands for itself."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from elman.compare import report, report_charts, report_words
from tests.compare.made import FIGURES, HOSTILE, comparison


class Reader(HTMLParser):
    """What a browser would see: every element with its attributes, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def anchors(self) -> list[str | None]:
        return [attributes.get("id") for tag, attributes in self.elements if tag == "section"]


def found(data: dict[str, Any]) -> str:
    return re.sub(r"<.*?>", "", " ".join(report_words.findings(data)))


def test_the_page_opens_with_the_best_model_its_interval_and_how_sure_that_is() -> None:
    said = found(comparison())
    assert "Of 9 models trained on 929,589 tokens and measured on 82,430 tokens of test text" in said
    assert "mkn+lstm predicts best: perplexity 97.9 (95 % interval 94.8–101.2)" in said
    assert "better than the next best, lstm (114.2), by more than chance" in said
    assert "weakest is unigram at 668.4: the best one's perplexity is 85% lower" in said  # 1 - 97.9 / 668.4 = 0.854


def test_a_difference_that_chance_explains_is_not_called_one() -> None:
    data = comparison()
    for one in data["differences"]:
        one["significant"] = False
    assert "too close to tell apart" in found(data) and "more than chance" not in found(data)


def test_a_net_that_loses_is_said_to_lose() -> None:
    data = comparison()
    next(model for model in data["models"] if model["name"] == "lstm")["perplexity"] = 900.0
    assert "weakest is lstm at 900.0" in found(data)


def test_models_that_are_equal_share_the_first_place() -> None:
    data = comparison()
    data["models"] = data["models"][:2]
    data["models"][0]["perplexity"] = data["models"][1]["perplexity"]
    assert "unigram and bigram predict best, equally" in found(data) and "next best" not in found(data)
    data["models"].append(data["models"][0] | {"name": "trigram"})
    assert "unigram, bigram and trigram predict best, equally" in found(data) and "weakest" not in found(data)


def test_scores_of_which_more_is_better_are_ranked_so() -> None:
    models = [
        {"name": name, "error": None, "f1": f1, "perplexity": 2.0} for name, f1 in (("rnn", 0.4), ("linear", 0.9))
    ]
    data = comparison() | {"models": models, "differences": []}
    assert "linear predicts best: F1 0.900" in found(data)
    assert '<td class="best" data-v="0.9">' in report.page(data)


def test_one_model_alone_is_not_best_of_all() -> None:
    data = comparison()
    data["models"] = data["models"][:1]
    assert found(data).startswith("unigram, trained on") and "best" not in found(data)


def test_failed_models_are_named_with_their_errors_and_the_others_stay() -> None:
    data = comparison()
    data["models"][6] |= {"error": "out of memory", "perplexity": None}
    data["failed"] = [{"name": "lstm", "error": "out of <memory>"}]
    page = Reader(report.page(data))
    assert "1 model failed" in page.text and "out of <memory>" in page.text
    data["models"] = [model | {"error": "x"} for model in data["models"]]
    assert "No model came to an end" in Reader(report.page(data)).text


def test_every_number_of_the_table_and_the_way_to_get_it_again_is_there() -> None:
    page = Reader(report.page(comparison()))
    for name, _, perplexity, *_ in FIGURES:
        assert f"{perplexity:,.1f}" in page.text
        assert f"elman train lm ptb.train.txt --model {name}" in page.text
    for part in ("elman compare ptb.train.txt", "0f3b1c55a0de9917", "2.10.0", "units space | eos counted"):
        assert part in page.text


def test_only_one_value_of_a_column_is_the_best() -> None:
    table = report.page(comparison()).partition('id="table"')[2].partition("</table>")[0]
    marked = re.findall(r'<td class="best" data-v="([^"]*)"', table)
    assert "97.9" in marked and "668.4" not in marked
    assert len(marked) == 9  # one in each column of numbers


def test_interval_bars_lie_on_one_logarithmic_scale() -> None:
    data = comparison()
    places = re.findall(r'<i style="left:([\d.]+)%;width:([\d.]+)%"></i></span>', report.page(data))
    lows, highs = ([model[f"perplexity_{end}"] for model in data["models"]] for end in ("low", "high"))
    whole = math.log(max(highs) / min(lows))
    for (left, width), low, high in zip(places, lows, highs, strict=True):
        assert float(left) == pytest.approx(100 * math.log(low / min(lows)) / whole, abs=0.06)
        assert float(width) == pytest.approx(100 * math.log(high / low) / whole, abs=0.06)


def test_hostile_text_adds_no_element_wherever_it_stands() -> None:
    harmless = Reader(report.page(comparison())).elements
    data = comparison()
    renamed = {model["name"]: f"{HOSTILE}{number}" for number, model in enumerate(data["models"])}

    def rename(value: Any) -> Any:
        match value:
            case dict():
                return {renamed.get(key, key): rename(one) for key, one in value.items()}
            case list():
                return [rename(one) for one in value]
            case str():
                return renamed.get(value, value)
            case _:
                return value

    data = rename(data)
    data |= {"note": HOSTILE, "command": HOSTILE, "signature": HOSTILE, "units": HOSTILE}
    data["data"]["train"] = [HOSTILE]
    for model in data["models"]:
        model |= {"sample": HOSTILE, "what": HOSTILE, "command": HOSTILE}
    page = report.page(data)
    tags = [tag for tag, _ in Reader(page).elements]
    assert tags.count("script") == 1 and "img" not in tags
    assert not any(name.startswith("on") for _, attributes in Reader(page).elements for name in attributes)
    assert [tag for tag, _ in harmless].count("svg") == tags.count("svg")
    assert "\x01" not in page


def test_nothing_is_loaded_and_no_script_but_its_own_may_run() -> None:
    page = Reader(report.page(comparison()))
    policy = next(one["content"] for tag, one in page.elements if one.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and "default-src 'none'" in policy and "script-src 'sha256-" in policy
    links = [one[key] for _, one in page.elements for key in ("src", "href") if one.get(key)]
    assert all(link is not None and link.startswith(("#", "data:")) for link in links)
    assert not re.findall(r"url\(|@import", report.page(comparison()))


def test_what_a_comparison_has_nothing_of_is_left_out() -> None:
    data = comparison()
    every = Reader(report.page(data)).anchors()
    assert every == ["table", "curves", "gradients", "frequency", "position", *every[5:]]
    assert every[5:] == ["differences", "wins", "mixtures", "samples", "again"]
    data |= {key: [] for key in ("differences", "by_frequency", "by_position", "lines", "gradients", "mixtures")}
    data["models"] = [model | {"curve": [], "sample": None, "perplexity_low": None} for model in data["models"]]
    assert Reader(report.page(data)).anchors() == ["table", "again"]
    assert "95 % interval" not in report.page(data)


def test_a_sweep_is_drawn_by_its_numbers_or_by_its_names() -> None:
    for values in ((2, 5, 10), ("tanh", "relu", "sigmoid")):
        points = [
            {"value": v, "name": f"w{v}", "parameters": 1000, "perplexity": 100.0 + i} for i, v in enumerate(values)
        ]
        data = comparison() | {"sweep": {"setting": "model.window", "equal": "parameters", "points": points}}
        page = Reader(report.page(data))
        assert "sweep" in page.anchors() and "with equal parameters" in page.text
        assert all(str(value) in page.text for value in values)


def test_tuned_models_measured_on_the_text_they_were_tuned_on_are_said_to_be() -> None:
    assert "text that nothing was tuned on" in report.page(comparison())
    assert "better than on new text" in report.page(comparison() | {"measured_on": "valid"})


def test_charts_take_the_colour_of_the_page() -> None:
    palette = report_charts.Palette(["lstm"])
    groups = [{"from": 1, "to": 2, "tokens": 3, "nats": {"lstm": 1.0}}]
    svg = report_charts.to_svg(report_charts.by_group(groups, palette, title="place"), 'a "title"')
    root = ElementTree.fromstring(svg)
    assert root.get("aria-label") == 'a "title"'
    texts = [node for node in root.iter() if node.tag.endswith("}text")]
    assert texts and all(node.get("fill") == "currentColor" for node in texts)
    assert not any((node.get("fill") or "").lower() in ("white", "#fff", "#ffffff") for node in root.iter())


def test_nets_are_drawn_even_where_eight_others_are_better() -> None:
    data = comparison()
    for model in data["models"]:
        if model["curve"]:
            model["perplexity"] += 1000
    for number in range(6):
        data["models"].append(data["models"][0] | {"name": f"order {number}", "perplexity": 50.0 + number})
    page = report.page(data).partition('id="curves"')[2].partition("</section>")[0]
    assert all(name in page.partition("legend")[2] for name in ("window", "rnn", "lstm", "transformer"))


def test_a_model_has_one_colour_and_more_than_can_be_told_apart_are_not_drawn() -> None:
    palette = report_charts.Palette([f"m{number}" for number in range(12)])
    colours = [palette.colour(name) for name in palette.names]
    assert len(palette.names) == len(set(colours)) == report_charts.MAX_LINES == len(report_charts.SHAPES)
    assert "m11" not in palette.legend(["m0", "m11"])


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (report_words.count(9_800), "9,800"),
        (report_words.count(298_000), "298 k"),
        (report_words.count(2_740_000), "2.74 M"),
        (report_words.count(999_999), "1,000 k"),
        (report_words.size(800), "800 B"),
        (report_words.size(47_600_000), "47.6 MB"),
        (report_words.duration(3.14), "3.1 s"),
        (report_words.duration(59.7), "1:00 min"),
        (report_words.duration(140), "2:20 min"),
        (report_words.duration(10_800), "3.0 h"),
        (report_charts.span({"from": 1001, "to": None}), "1,001+"),
        (report_charts.span({"from": 7, "to": 7}), "7"),
        (report_charts.span({"from": 1, "to": 10}), "1–10"),
    ],
)
def test_numbers_are_short(shown: str, expected: str) -> None:
    assert shown == expected


def test_an_earlier_report_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("old")
    assert report.write_report(tmp_path, comparison()) == tmp_path / "report.html"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
