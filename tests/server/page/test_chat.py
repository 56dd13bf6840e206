"""Chatting on the page in a browser, against a live server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from genai_pipeline.server.callers import ApiKey

pytestmark = pytest.mark.browser

BOTH = {"tools": {"format": "json_tagged"}, "reasoning": {"open": "<think>", "close": "</think>"}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def sent(request: Any) -> Any:
    return json.loads(request.post_data)


def test_an_answer_streams_in_and_its_tokens_are_counted(visit: Any, live: Any, says: Any, ask: Any) -> None:
    page = visit(live(says("A caf\u00e9, \U0001f389!")))
    with page.expect_request("**/v1/chat/completions") as asked:
        answer = ask(page, "Where to?")
    assert answer.locator(".text").text_content() == "A caf\u00e9, \U0001f389!"
    figures = answer.locator(".figures").text_content().replace("\u00a0", " ")
    assert "11 answer tokens" in figures  # the end token too
    assert "prompt tokens" in figures
    assert "tokens/s" in figures
    assert figures.endswith("stop")
    body = sent(asked.value)
    assert body["stream"]
    assert body["messages"] == [{"role": "user", "content": "Where to?"}]
    assert set(body) == {"model", "messages", "stream", "stream_options"}  # empty parameters are the package's


def test_the_conversation_goes_on_and_begins_anew(visit: Any, live: Any, says: Any, ask: Any) -> None:
    page = visit(live(says("Yes.")))
    ask(page, "One")
    with page.expect_request("**/v1/chat/completions") as asked:
        ask(page, "Two")
    said = [(message["role"], message["content"]) for message in sent(asked.value)["messages"]]
    assert said == [("user", "One"), ("assistant", "Yes."), ("user", "Two")]
    page.click("#reset")
    assert page.locator(".message").count() == 0
    with page.expect_request("**/v1/chat/completions") as asked:
        ask(page, "Three")
    assert [message["content"] for message in sent(asked.value)["messages"]] == ["Three"]


def test_markup_in_an_answer_is_shown_as_text(visit: Any, live: Any, says: Any, ask: Any) -> None:
    markup = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    text = f"<think>{markup}</think>{markup}"
    page = visit(live(says(text, reasoning=BOTH["reasoning"])))
    answer = ask(page, markup)
    assert answer.locator(".text").text_content() == markup
    assert answer.locator(".thoughts").text_content() == markup
    assert page.locator(".message.you .text").text_content() == markup
    assert page.locator("#log img, #log script").count() == 0


def test_the_policy_keeps_scripts_from_making_markup(visit: Any, live: Any, tiny: Any) -> None:
    page = visit(live(tiny()), noted=("TrustedHTML",))
    made = "() => { try { document.body.innerHTML = '<b>x</b>'; return 'made'; } catch (error) { return error.name; } }"
    assert page.evaluate(made) == "TypeError"
    page.wait_for_selector("#prompt")


def test_reasoning_is_folded_away(visit: Any, live: Any, says: Any, ask: Any) -> None:
    page = visit(live(says("<think>Rome, then.</think>Rome.", reasoning=BOTH["reasoning"])))
    answer = ask(page, "Where to?")
    assert answer.locator(".text").text_content() == "Rome."
    thoughts = answer.locator(".thoughts")
    assert not thoughts.is_visible()
    answer.locator("summary").press("Enter")
    assert thoughts.is_visible()
    assert thoughts.text_content() == "Rome, then."


def test_tool_calls_are_shown_and_take_results(visit: Any, live: Any, says: Any, ask: Any) -> None:
    page = visit(live(says(f"I look.\n{CALL}", **BOTH)))
    page.fill("[name=tools]", json.dumps(TOOLS))
    answer = ask(page, "Rain?")
    assert answer.locator(".call code").text_content() == "weather"
    assert json.loads(answer.locator(".call pre").text_content()) == {"city": "Rome"}
    answer.locator(".results textarea").fill("sunny")
    with page.expect_request("**/v1/chat/completions") as asked:
        page.get_by_role("button", name="Send results").click()
    *_, assistant, tool = sent(asked.value)["messages"]
    assert tool == {"role": "tool", "tool_call_id": assistant["tool_calls"][0]["id"], "content": "sunny"}
    assert assistant["tool_calls"][0]["function"]["name"] == "weather"
    page.locator(".message.assistant").nth(1).locator(".figures").wait_for()


@pytest.mark.parametrize("how", ["button", "key"])
def test_an_answer_can_be_stopped_and_the_server_hears_of_it(
    visit: Any, live: Any, tiny: Any, http: Any, how: str
) -> None:
    url = live(tiny("kv", name="endless", end_at=None, eos=["</s>"], context_length=60_000))
    page = visit(url)
    page.fill("#prompt", "Count.")
    page.press("#prompt", "Enter")
    page.wait_for_function("() => document.querySelector('.coming .text')?.textContent.length > 20")
    page.click("#stop") if how == "button" else page.keyboard.press("Escape")
    figures = page.locator(".message.assistant .figures")
    figures.wait_for(state="attached")
    assert figures.text_content().endswith("stopped")
    assert page.locator("#send").is_visible()
    gone = "async url => (await (await fetch(url)).json()).models[0].engine.requests.cancelled === 1"
    page.wait_for_function(gone, arg=f"{url}/admin/status")


def test_errors_teach_and_lead_to_the_parameter(visit: Any, live: Any, says: Any, ask: Any) -> None:
    page = visit(live(says("Yes.")))
    page.fill("[name=temperature]", "-1")
    problem = ask(page, "One").locator(".problem")
    assert "temperature" in problem.text_content()
    assert "400" in problem.text_content()
    field = page.locator("[name=temperature]")
    assert field.get_attribute("aria-invalid") == "true"
    page.click("#tab-graph")
    problem.get_by_role("button", name="Show the parameter").click()
    assert field.evaluate("field => field === document.activeElement")
    field.fill("0")
    assert field.get_attribute("aria-invalid") is None
    page.get_by_role("button", name="Try again").click()
    page.wait_for_function("() => document.querySelector('.assistant .text').textContent === 'Yes.'")
    assert page.locator(".problem").count() == 0


def test_a_question_that_got_no_answer_is_left_out_of_the_next_request(
    visit: Any, live: Any, says: Any, ask: Any
) -> None:
    page = visit(live(says("Yes.")))
    page.fill("[name=top_p]", "7")
    ask(page, "One")
    page.fill("[name=top_p]", "")
    with page.expect_request("**/v1/chat/completions") as asked:
        ask(page, "Two")
    assert [message["content"] for message in sent(asked.value)["messages"]] == ["Two"]
    assert page.locator(".left-out .text").text_content() == "One"


def test_parameters_go_into_the_request(visit: Any, live: Any, says: Any, ask: Any) -> None:
    page = visit(live(says("{}", reasoning=BOTH["reasoning"])))
    schema = {"type": "object", "properties": {}}
    values = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "max_tokens": 4, "seed": 7}
    for name, value in values.items():
        page.fill(f"[name={name}]", str(value))
    page.fill("[name=system]", "Be brief.")
    page.fill("[name=schema]", json.dumps(schema))
    page.select_option("[name=reasoning_effort]", "low")
    with page.expect_request("**/v1/chat/completions") as asked:
        ask(page, "One")
    body = sent(asked.value)
    assert {name: body[name] for name in values} == values
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body["reasoning_effort"] == "low"
    assert body["response_format"]["json_schema"]["schema"] == schema


def test_what_is_no_json_is_not_sent(visit: Any, live: Any, says: Any, ask: Any) -> None:
    page = visit(live(says("Yes.")))
    page.fill("[name=schema]", "{type: object}")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    problem = ask(page, "One").locator(".problem")
    assert "not JSON" in problem.text_content()
    assert page.locator("[name=schema]").get_attribute("aria-invalid") == "true"
    assert asked == []


def test_packages_are_picked(visit: Any, live: Any, says: Any, ask: Any) -> None:
    page = visit(live(says("First.", name="first"), says("Second.", name="second")))
    assert page.locator("#package option").all_text_contents() == ["first", "second"]
    page.select_option("#package", "second")
    answer = ask(page, "Who?")
    assert answer.locator(".text").text_content() == "Second."
    assert answer.locator("h2").text_content() == "second"


def test_the_key_is_asked_for_and_kept_in_this_tab_alone(visit: Any, live: Any, says: Any, ask: Any) -> None:
    url = live(says("Yes.", name="it"), keys=(ApiKey.of("user", "the-secret"),))
    page = visit(url, ready=False)
    page.wait_for_selector("#notice:visible")
    assert "API key" in page.locator("#notice").text_content()
    page.fill("#key", "wrong")
    page.press("#key", "Enter")
    page.wait_for_function("() => document.getElementById('notice').textContent.includes('not known')")
    page.fill("#key", "the-secret")
    page.press("#key", "Enter")
    page.wait_for_selector("#package:enabled")
    assert not page.locator("#notice").is_visible()
    assert ask(page, "One").locator(".text").text_content() == "Yes."
    kept = page.evaluate("() => [Object.values({...sessionStorage}), localStorage.length, document.cookie]")
    assert kept == [["the-secret"], 0, ""]
    page.click("#tab-graph")
    refused = page.locator("#drawing .problem")
    refused.wait_for()
    assert "this key may not" in refused.text_content()
    page.reload()
    page.wait_for_selector("#package:enabled")
    other = page.context.new_page()
    other.goto(url)
    assert other.evaluate("() => sessionStorage.length") == 0


def test_a_stream_that_breaks_off_says_so(visit: Any, live: Any, says: Any, ask: Any) -> None:
    page = visit(live(says("Yes.")), noted=("net::ERR_FAILED",))
    begun = 'data: {"choices": [{"index": 0, "delta": {"content": "Ye"}}]}\n\n'
    headers = {"content-type": "text/event-stream"}
    page.route("**/v1/chat/completions", lambda route: route.fulfill(status=200, headers=headers, body=begun))
    answer = ask(page, "One")
    assert answer.locator(".text").text_content() == "Ye"
    assert "ended before the answer did" in answer.locator(".problem").text_content()
    page.unroute_all()
    page.route("**/v1/chat/completions", lambda route: route.abort())
    assert "cannot be reached" in ask(page, "Two").locator(".problem").text_content()


def test_an_error_in_mid_stream_is_shown_below_what_came(visit: Any, live: Any, says: Any, ask: Any) -> None:
    page = visit(live(says("Yes.")))
    error = {"message": "the engine gave up", "type": "server_error", "code": "engine_failed", "param": None}
    chunks = [{"choices": [{"index": 0, "delta": {"content": "Ye"}}]}, {"error": error}]
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    headers = {"content-type": "text/event-stream"}
    page.route("**/v1/chat/completions", lambda route: route.fulfill(status=200, headers=headers, body=body))
    answer = ask(page, "One")
    assert answer.locator(".text").text_content() == "Ye"
    assert "the engine gave up" in answer.locator(".problem").text_content()
    assert "engine_failed" in answer.locator(".problem").text_content()


def test_events_are_read_whatever_way_they_are_cut(visit: Any, live: Any, tiny: Any) -> None:
    page = visit(live(tiny()))
    text = ': keep-alive\r\n\r\ndata: {"a": "caf\u00e9 \U0001f389"}\r\n\r\nevent: x\ndata: two\ndata:lines\n\ndata: cut'
    read = """async ([text, size]) => {
        const { readEvents } = await import("./page/sse.js");
        const bytes = new TextEncoder().encode(text);
        const stream = new ReadableStream({
            start(controller) {
                for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size));
                controller.close();
            },
        });
        const found = [];
        for await (const data of readEvents(stream)) found.push(data);
        return found;
    }"""
    for size in (1, 2, 3, 7, 1000):
        assert page.evaluate(read, [text, size]) == ['{"a": "caf\u00e9 \U0001f389"}', "two\nlines"]
