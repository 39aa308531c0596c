"""The studio's files, and comparisons over HTTP."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from elman.serve import vega
from elman.serve.context import ServeOptions
from elman.serve.server import listen
from elman.serve.studio import studio_files
from tests.compare.made import HOSTILE, comparison
from tests.serve.running import Running, running


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison whose models are not there any more."""
    folder = tmp_path_factory.mktemp("some") / "compared"
    folder.mkdir()
    (folder / "comparison.json").write_text(json.dumps(comparison()))
    return folder


@pytest.fixture(scope="module")
def server(model: Path, compared: Path) -> Iterator[Running]:
    with running([model, compared]) as found:
        yield found


def test_every_file_has_a_kind_and_a_policy_and_is_not_sent_twice(server: Running) -> None:
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    assert len(studio_files()) > 10
    for path in studio_files():
        found = server.get(path)
        ending = "html" if path == "/" else path.rpartition(".")[2]
        assert found.status_code == 200 and found.headers["content-type"].startswith(kinds[ending])
        assert "unsafe" not in found.headers["content-security-policy"]
        assert server.get(path, headers={"if-none-match": found.headers["etag"]}).status_code == 304


def test_the_page_has_nothing_inline_and_asks_for_nothing_that_is_not_there() -> None:
    files = {path: content.decode() for path, content in studio_files().items()}
    page = files["/"]
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", page)
    assert {*re.findall(r'(?:href|src)="(/[^"#]*)"', page)} <= {*files}
    for path, content in files.items():
        if path.endswith(".js"):
            wanted = re.findall(r"""(?:from |import\()["'](\.[^"']*)["']""", content)
            assert {name.replace("./", "/studio/") for name in wanted} <= {*files, "/studio/vega.js"}, path
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://", content), (
                path
            )


def test_the_script_that_draws_is_kept_and_is_the_one_of_vl_convert(
    server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vl_convert

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    vega.vega_script.cache_clear()
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: "made once")
    assert server.get("/studio/vega.js").text == "made once"
    vega.vega_script.cache_clear()
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: pytest.fail("it was made again"))
    assert server.get("/studio/vega.js").text == "made once"
    vega.vega_script.cache_clear()


def test_without_a_cache_the_script_is_made_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import vl_convert

    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: "a script")
    vega.vega_script.cache_clear()
    assert vega.vega_script() == b"a script"
    vega.vega_script.cache_clear()


def test_a_comparison_is_listed_and_has_its_table_and_its_pictures(server: Running) -> None:
    assert server.get("/v1/comparisons").json()["data"] == [
        {"id": "compared", "title": "Models compared on ptb.train.txt"}
    ]
    found = server.get("/v1/comparisons/compared").json()
    headings = [column["heading"] for column in found["columns"]]
    assert headings[:2] == ["perplexity", "bits/byte"]
    assert [row["name"] for row in found["rows"]][:2] == ["unigram", "bigram"]
    best = {row["name"]: row["cells"][0] for row in found["rows"]}
    assert best["mkn+lstm"] == {"value": 97.9, "text": "97.9", "is_best": True}
    assert [picture["name"] for picture in found["pictures"]] == ["curves", "by_frequency", "by_position"]
    assert '"legend": null' not in json.dumps(found["pictures"])
    assert found["data"]["lines"][-1]["text"] == HOSTILE  # as it is: the page sets text as text


def test_models_of_a_comparison_are_named_as_they_are_served(model: Path, tmp_path: Path) -> None:
    data = comparison()
    data["models"][0]["directory"] = model.name
    data["models"][1]["directory"] = "../elsewhere"
    (model.parent / "comparison.json").write_text(json.dumps(data))
    try:
        with running([model.parent]) as found:
            assert [one["id"] for one in found.get("/v1/models").json()["data"]] == ["model"]
            rows = found.get(f"/v1/comparisons/{model.parent.name}").json()["rows"]
            assert [row["model"] for row in rows[:3]] == ["model", None, None]
    finally:
        (model.parent / "comparison.json").unlink()


@pytest.mark.parametrize("name", ["other", "..", "%2e%2e%2fmodel", "compared%00"])
def test_a_comparison_that_was_not_given_is_not_there(server: Running, name: str) -> None:
    assert server.get(f"/v1/comparisons/{name}").status_code == 404


def test_answers_are_sent_at_once() -> None:
    """A socket that was not named as TCP kept Nagle's algorithm: small answers waited 40 ms for the client's ACK."""
    found, _ = listen(ServeOptions(port=0))
    with found:
        assert found.proto == socket.IPPROTO_TCP
