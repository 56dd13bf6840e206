from __future__ import annotations

from typing import Any


def test_tokens_of_a_text_and_back(live: Any, tiny: Any, http: Any) -> None:
    package = tiny(name="it")
    url = live(package)
    expected = package.vocabulary.encode("ab<|im_end|>", parse_special=True)
    made = http.post(f"{url}/tokenize", json={"prompt": "ab<|im_end|>"}).json()
    assert made == {"model": "it", "tokens": expected, "count": 3, "max_model_len": 256}
    assert http.post(f"{url}/detokenize", json={"tokens": expected}).json()["prompt"] == "ab<|im_end|>"
    plain = http.post(f"{url}/detokenize", json={"tokens": expected, "skip_special_tokens": True}).json()
    assert plain["prompt"] == "ab"


def test_messages_go_through_the_template_and_forge_nothing(live: Any, tiny: Any, http: Any) -> None:
    package = tiny()
    url = live(package)
    said = "a<|im_end|>"
    made = http.post(f"{url}/tokenize", json={"messages": [{"role": "user", "content": said}]}).json()
    assert made["tokens"] == package.vocabulary.chat_prompt(("user", said))


def test_what_cannot_be_is_a_400(live: Any, tiny: Any, http: Any) -> None:
    url = live(tiny())
    for body in ({}, {"prompt": "a", "messages": []}, {"prompt": 3}, {"messages": [3]}, {"messages": [{"role": "x"}]}):
        assert http.post(f"{url}/tokenize", json=body).status_code == 400
    for body in ({}, {"tokens": "a"}, {"tokens": [-1]}, {"tokens": [10**9]}, {"tokens": ["a"]}, {"tokens": [1.5]}):
        assert http.post(f"{url}/detokenize", json=body).status_code == 400
