"""While a long answer is generated, health, metrics and resources answer at once, and tell the truth."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

LONG = {"messages": [{"role": "user", "content": "ab"}], "max_tokens": 15_000, "ignore_eos": True, "stream": True}
PLUGIN = "plugin:nxrt-ep-cpu"


@pytest.mark.parametrize(
    ("load", "backend", "unused"),
    [
        ({}, "ort", []),
        ({"backend": "nxrt"}, "nxrt", []),
        ({"providers": [PLUGIN, "cpu"]}, "ort", ["cpu_ep"]),  # it takes no node of this graph
    ],
    ids=["ort", "nxrt", "plugin"],
)
def test_health_metrics_and_models_answer_and_say_what_runs_and_on_what(
    live: Any, tiny: Any, http: Any, load: dict[str, Any], backend: str, unused: list[str]
) -> None:
    url = live(tiny(name="it", update="append", context_length=20_000), load=load)
    with httpx.Client(timeout=60) as other, other.stream("POST", f"{url}/v1/chat/completions", json=LONG) as run:
        lines = run.iter_lines()  # which ends the request when it goes
        next(lines)
        assert [model["id"] for model in http.get(f"{url}/v1/models").json()["data"]] == ["it"]
        told = [line for line in http.get(f"{url}/metrics").text.splitlines() if line.startswith("genai_running")]
        assert told == ['genai_running{model="it"} 1.0']
        assert http.get(f"{url}/ready").status_code == 200
        health = http.get(f"{url}/health").json()
        (model,) = health["models"]
        assert (health["requests"] >= 1, model["running"], model["queue"]) == (True, 1, 0)  # it has not ended meanwhile
        assert model["providers"] == ["cpu"]
        (graph,) = model["graphs"]
        assert (graph["backend"], list(graph["providers"]), graph["unused_providers"]) == (backend, ["cpu"], unused)
        assert graph["fell_to_cpu"] == (graph["providers"]["cpu"] if unused else 0)
    while http.get(f"{url}/health").json()["models"][0]["running"]:
        pass
    assert 'genai_running{model="it"} 0.0' in http.get(f"{url}/metrics").text
