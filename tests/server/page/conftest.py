"""Headless Chromium with the page of a live server; ``make test-page`` installs what it takes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from genai_pipeline.testing import TinyPackage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHAT = (
    "{% if tools %}<|im_start|>tools {{ tools | length }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls %}{{ call.function.name }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OPEN_LIMIT = 20_000  # milliseconds that anything may take before the test fails
REFUSED = "the server responded with a status of"  # how Chromium notes responses of 400 and above


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # root has none; only our own page is opened
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=arguments)
        yield started
        started.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """``visit(url, **context options)``: the page, ready; at the end nothing may have gone wrong in its scripts.

    ``noted`` are words of what Chromium notes because the test provokes it.
    """
    contexts, wrong = [], []

    def go(url: str, *, ready: bool = True, noted: tuple[str, ...] = (), **options: Any) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(OPEN_LIMIT)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if _is_wrong(said, (REFUSED, *noted)) else None)
        page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
        page.goto(url)
        if ready:
            page.wait_for_selector("#package:enabled")
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrong == []


def _is_wrong(said: Any, noted: tuple[str, ...]) -> bool:
    return said.type in ("error", "warning") and not any(words in said.text for words in noted)


@pytest.fixture
def says(tiny: Any) -> Callable[..., TinyPackage]:
    """``says(text, name=..., **metadata)``: a package that says the text character by character."""

    def make(text: str, *, name: str = "teller", **metadata: Any) -> TinyPackage:
        package: TinyPackage = tiny(
            "script",
            name=name,
            script=list(text),
            chat_template=CHAT,
            context_length=1024,
            generation={"defaults": {"temperature": 0}},
            edit=lambda written: written.update(metadata),
        )
        return package

    return make


@pytest.fixture
def ask() -> Callable[..., Any]:
    """``ask(page, text)``: send a message; gives the last answer once it has ended."""

    def send(page: Page, text: str) -> Any:
        page.fill("#prompt", text)
        page.press("#prompt", "Enter")
        answer = page.locator(".message.assistant").last
        answer.locator(".figures").wait_for(state="attached")
        return answer

    return send
