from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from genai_pipeline.errors import ProviderUnavailableError


def test_models_lists_exactly_what_is_served(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(name="first"), tiny(name="second"))
    listed = http.get(f"{url}/v1/models").json()
    assert [model["id"] for model in listed["data"]] == ["first", "second"]
    assert http.get(f"{url}/v1/models/second").json()["id"] == "second"
    assert listed["data"][0]["loaded"]
    assert not listed["data"][1]["loaded"]
    assert listed["data"][1]["graphs"] == []
    (graph,) = listed["data"][0]["graphs"]
    assert (graph["model"], graph["fell_to_cpu"]) == ("model.onnx", 0)


def test_an_unknown_model_is_a_404_with_the_nearest_name(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(name="the-model"))
    answer = http.get(f"{url}/v1/models/the-modle")
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert error["code"] == "model_not_found"
    assert error["param"] == "model"
    assert "the-model" in error["message"]


def test_health_says_what_runs_and_on_what(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny(name="it"))
    body = http.get(f"{url}/health").json()
    assert body["status"] == "ok"
    (model,) = body["models"]
    assert model["name"] == "it"
    assert model["state"] == "loaded"
    assert model["providers"] == ["cpu"]
    (graph,) = model["graphs"]
    assert (graph["component"], graph["backend"], list(graph["providers"])) == ("decoder", "ort", ["cpu"])
    assert model["running"] == 0
    assert http.get(f"{url}/ready").json() == {"status": "ready"}


def test_what_fell_to_the_cpu_is_shown_of_each_graph(
    live: Any, tiny: Any, http: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "genai_pipeline.placement"):
        url = live(tiny("cross", name="it"), load={"providers": {"encoder": ["plugin:nxrt-ep-cpu", "cpu"]}})
    assert [record.component for record in caplog.records if record.event == "placement"] == ["encoder"] * 2
    for model in (http.get(f"{url}/health").json()["models"][0], http.get(f"{url}/v1/models/it").json()):
        encoder, decoder = model["graphs"]
        assert encoder["unused_providers"] == ["cpu_ep"]
        assert encoder["fell_to_cpu"] == sum(encoder["cpu_operators"].values()) > 0
        assert (decoder["fell_to_cpu"], decoder["unused_providers"]) == (0, [])


@pytest.mark.parametrize("preload", ["first", "none"])
def test_a_server_starts_only_on_what_is_there(live: Any, tiny: Any, preload: str) -> None:
    with pytest.raises(ProviderUnavailableError, match="'cuda'"):
        live(tiny(name="it"), load={"providers": "cuda"}, preload=preload)


def test_paths_and_methods_that_are_not_there_have_the_shape_of_the_api(
    live: Callable[..., str], tiny: Any, http: Any
) -> None:
    url = live(tiny())
    missing, other = http.get(f"{url}/v1/nothing"), http.put(f"{url}/v1/models")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    assert (other.status_code, other.json()["error"]["code"]) == (405, "method_not_allowed")
    assert "GET" in other.headers["allow"]


def test_request_ids_are_echoed_and_made(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny())
    assert http.get(f"{url}/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert http.get(f"{url}/health", headers={"x-request-id": "not an id"}).headers["x-request-id"].startswith("req_")
