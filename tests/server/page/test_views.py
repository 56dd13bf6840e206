"""The page's layout, keys, graph and gauges in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import genai_pipeline as gp
from genai_pipeline.graph.assembly import Assembler
from genai_pipeline.graph.liveness import find_live
from genai_pipeline.graph.plan import ExecutionPlan
from genai_pipeline.graph.render import to_json
from genai_pipeline.graph.scopes import build_scopes, scope_graphs
from genai_pipeline.metadata.build import build
from genai_pipeline.metadata.schema import check_schema
from genai_pipeline.metadata.yaml_reader import read_text
from genai_pipeline.problems import Problems

pytestmark = pytest.mark.browser

EXAMPLES = sorted((Path(__file__).parents[2] / "graph" / "examples").glob("*.yaml"))
LAYOUT = """async plan => {
    const { graphModel } = await import("./page/graph_model.js");
    const { layout } = await import("./page/graph_layout.js");
    const measure = node => ({ width: 30 + 8 * Math.max(node.title.length, (node.note ?? "").length), height: 40 });
    const flat = ({ width, height, nodes, edges }) => ({
        width, height,
        nodes: nodes.map(({ node, inner, x, y, width, height }) => ({
            id: node.id, kind: node.kind, title: node.title, x, y, width, height,
            inner: inner ? { x: inner.x, y: inner.y, ...flat(inner) } : null,
        })),
        edges: edges.map(({ edge, points }) => ({ ...edge, points })),
    });
    return flat(layout(graphModel(plan), measure));
}"""


def plan_of_example(path: Path) -> dict[str, Any]:
    """The plan of metadata alone: what needs the graphs' files is left out of it."""
    root, problems = read_text(path.read_text(encoding="utf-8"), path.name)
    assert root is not None, problems
    checked, found = check_schema(root), Problems()
    assert checked.root is not None
    package = build(checked.root, path.parent, path, found)
    top = build_scopes(package, {}, found)
    graphs, live = scope_graphs(top, package), find_live(top)
    outputs = {name: spec.value for name, spec in package.outputs.items()}
    return to_json(
        ExecutionPlan(
            package=package,
            graph=graphs[""],
            scopes=graphs,
            root=Assembler(graphs, live, {}).scope_plan(top),
            components={},
            outputs=outputs,
            capabilities=frozenset(),
            facts={},
        )
    )


def stages(scope: list[dict[str, Any]]) -> list[str]:
    return [name for stage in scope for name in (stage["id"], *stages(stage.get("body", {}).get("stages", [])))]


def scopes(scope: dict[str, Any]) -> list[dict[str, Any]]:
    return [scope, *(deep for node in scope["nodes"] if node["inner"] for deep in scopes(node["inner"]))]


def overlap(a: dict[str, Any], b: dict[str, Any]) -> bool:
    across = a["x"] < b["x"] + b["width"] and b["x"] < a["x"] + a["width"]
    return across and a["y"] < b["y"] + b["height"] and b["y"] < a["y"] + a["height"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_graphs_are_laid_out_without_overlaps_and_from_top_to_bottom(
    visit: Any, live: Any, tiny: Any, example: Path
) -> None:
    plan = plan_of_example(example)
    placed = visit(live(tiny())).evaluate(LAYOUT, plan)
    drawn = [node["title"] for scope in scopes(placed) for node in scope["nodes"] if node["kind"] in ("stage", "loop")]
    assert sorted(drawn) == sorted(stages(plan["stages"]))
    outputs = [node["title"] for node in placed["nodes"] if node["kind"] == "output"]
    assert outputs == list(plan["outputs"])
    for scope in scopes(placed):
        nodes = {node["id"]: node for node in scope["nodes"]}
        for node in nodes.values():
            assert 0 <= node["x"] <= node["x"] + node["width"] <= scope["width"]
            assert 0 <= node["y"] <= node["y"] + node["height"] <= scope["height"]
            assert not [other for other in nodes.values() if other is not node and overlap(node, other)]
            inner = node["inner"]
            assert inner is None or inner["x"] + inner["width"] <= node["width"] + 1e-6
            assert inner is None or inner["y"] + inner["height"] <= node["height"] + 1e-6
        for edge in scope["edges"]:
            start, end = nodes[edge["from"]], nodes[edge["to"]]
            assert edge["back"] or start["y"] + start["height"] < end["y"]
            assert all(0 <= x <= scope["width"] and 0 <= y <= scope["height"] for x, y in edge["points"])
        read = {edge["from"] for edge in scope["edges"]} | {edge["to"] for edge in scope["edges"]}
        assert {node["id"] for node in nodes.values() if node["kind"] == "value"} <= read


def test_loops_lead_back_to_what_they_carry(visit: Any, live: Any, tiny: Any) -> None:
    page = visit(live(tiny()))
    speech = plan_of_example(next(path for path in EXAMPLES if path.stem == "speech_lm"))
    back = {
        (edge["from"].rpartition(":")[2], edge["to"].rpartition(":")[2])
        for scope in scopes(page.evaluate(LAYOUT, speech))
        for edge in scope["edges"]
        if edge["back"]
    }
    assert back == {("speak/frame_next", "speak/loop.frame"), ("speak/codebooks/embedded", "speak/codebooks/loop.x")}


def test_the_graph_of_a_package_is_drawn_and_its_nodes_tell_ports(visit: Any, live: Any, tiny: Any) -> None:
    package = tiny("embeds", name="two-parts")
    page = visit(live(package))
    page.click("#tab-graph")
    page.wait_for_selector("#drawing svg")
    spec, _ = gp.validate(package.path)
    assert spec is not None
    plan = to_json(gp.compile(spec))
    titles = page.locator("#drawing .title").all_text_contents()
    assert set(stages(plan["stages"])) <= set(titles)
    assert {"prompt", "prompt.tokens", "text", "choose the token", "loop.tokens", "logits"} <= set(titles)
    assert page.locator("#drawing .edge.back").count() == 1
    page.locator(".node.stage .handle", has_text="embed").first.click()
    detail = page.locator("#detail")
    assert detail.locator("h3").text_content() == "embed"
    (port,) = plan["components"]["embed"]["inputs"]
    assert port["name"] in detail.text_content()
    assert f"{port['dtype']} [{', '.join(str(size) for size in port['shape'])}]" in detail.text_content()
    choice = page.locator(".node.choice .handle")
    choice.focus()
    choice.press("Enter")
    assert detail.locator("h3").text_content() == "choose the token"


def test_labels_fit_their_nodes(visit: Any, live: Any, tiny: Any) -> None:
    page = visit(live(tiny("embeds")))
    page.click("#tab-graph")
    page.wait_for_selector("#drawing svg")
    too_wide = """() => [...document.querySelectorAll("#drawing .handle")].filter(handle => {
        const room = handle.querySelector("rect").getBBox().width;
        return [...handle.querySelectorAll("text")].some(text => text.getBBox().width > room);
    }).length"""
    assert page.evaluate(too_wide) == 0


def test_zoom_changes_the_size(visit: Any, live: Any, tiny: Any) -> None:
    page = visit(live(tiny("embeds")))
    page.click("#tab-graph")
    picture = page.locator("#drawing svg")
    picture.wait_for()
    fit = float(picture.get_attribute("width"))
    page.click('[data-zoom="in"]')
    assert float(picture.get_attribute("width")) > fit
    page.click('[data-zoom="out"]')
    page.click('[data-zoom="out"]')
    assert float(picture.get_attribute("width")) < fit


def test_figures_of_a_second_come_from_two_looks(visit: Any, live: Any, tiny: Any) -> None:
    page = visit(live(tiny()))
    pages = {"arena": {"used": 5, "free": 7}, "host": {"used": 2}, "disk": {"used": 0}}
    before = {
        "uptime_seconds": 10.0,
        "tokens": {"generated": 100, "prompt": 10},
        "prefix": {"hit_tokens": 0},
        "rows": {"decode": {"1": 10}},
    }
    now = {
        "uptime_seconds": 12.0,
        "queue": 3,
        "running": 4,
        "pages": pages,
        "tokens": {"generated": 160, "prompt": 10},
        "prefix": {"hit_tokens": 32},
        "rows": {"decode": {"1": 12, "4": 6}},
    }
    figures = "async ([before, now]) => (await import('./page/gauges.js')).figures(before, now)"
    assert page.evaluate(figures, [before, now]) == {
        "generated": 30,
        "prompt": 0,
        "cached": 16,
        "queue": 3,
        "running": 4,
        "rows": 3.25,  # two steps of one row, six of four
        "arena": 5,
        "host": 2,
        "disk": 0,
    }
    first = page.evaluate(figures, [None, now])
    assert (first["generated"], first["rows"], first["queue"]) == (None, None, 3)


def test_gauges_look_every_second_while_they_are_seen(visit: Any, live: Any, says: Any, ask: Any) -> None:
    page = visit(live(says("Yes.", name="it")))
    looks = []
    page.on("request", lambda request: looks.append(request.url) if request.url.endswith("/admin/status") else None)
    page.clock.install()
    ask(page, "One")
    page.clock.run_for(5000)
    assert looks == []
    with page.expect_response("**/admin/status"):
        page.click("#tab-load")
        page.clock.run_for(10)
    page.wait_for_function("() => document.getElementById('load-title').textContent.includes('request')")
    title = page.locator("#load-title").text_content()
    assert "it \u00b7 loaded" in title
    assert "0 failed" not in title
    assert page.locator("#gauge-queue [data-series=running]").text_content() == "0"
    assert "of" in page.locator("#gauge-pages").text_content()
    for _ in range(2):
        with page.expect_response("**/admin/status"):
            page.clock.run_for(1000)
    page.wait_for_function("() => document.querySelector('#gauge-tokens .line').getAttribute('d').includes('L')")
    seen = len(looks)
    page.click("#tab-settings")
    page.clock.run_for(5000)
    assert len(looks) == seen


def test_gauges_say_when_figures_are_kept_elsewhere(visit: Any, live: Any, says: Any) -> None:
    page = visit(live(says("Yes."), admin=False))
    page.click("#tab-load")
    page.wait_for_function("() => document.getElementById('load-title').textContent.includes('administration')")
    page.click("#tab-graph")
    page.wait_for_function("() => document.getElementById('drawing').textContent.includes('administration')")


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_wider_than_the_screen(visit: Any, live: Any, says: Any, ask: Any, width: int) -> None:
    page = visit(live(says("A-very-long-word-without-any-break-" * 8)), viewport={"width": width, "height": 700})
    ask(page, "A question without any break: " + "x" * 300)
    names = ["chat", "settings", "graph", "load"] if width < 900 else ["settings", "graph", "load"]
    for name in names:
        page.click(f"#tab-{name}")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        assert page.locator(f"#{name}").is_visible()
    if width < 900:
        page.click("#tab-chat")
    wide = "() => { const log = document.getElementById('log'); return log.scrollWidth - log.clientWidth; }"
    assert page.evaluate(wide) <= 0
    for control in ("#send", "#prompt", "#package", "#key"):
        box = page.locator(control).bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width


def test_light_and_dark_follow_the_system(visit: Any, live: Any, tiny: Any) -> None:
    url, shade = live(tiny()), {}
    for scheme in ("light", "dark"):
        page = visit(url, color_scheme=scheme)
        colours = "() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        shade[scheme] = page.evaluate(f"() => ({colours})().map(colour => Number(colour.match(/\\d+/)[0]))")
    assert shade["light"][0] > 200 > 100 > shade["light"][1]
    assert shade["dark"][1] > 200 > 100 > shade["dark"][0]


def test_keys_are_enough(visit: Any, live: Any, says: Any) -> None:
    page = visit(live(says("Yes.")))
    page.focus("#prompt")
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    page.locator(".message.assistant .figures").wait_for()
    assert page.locator(".message.you .text").text_content() == "one\ntwo"
    page.focus("#tab-settings")
    page.keyboard.press("ArrowRight")
    assert page.locator("#tab-graph").get_attribute("aria-selected") == "true"
    assert page.locator("#tab-graph").evaluate("tab => tab === document.activeElement")
    page.wait_for_selector("#drawing svg")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#tab-load").get_attribute("aria-selected") == "true"


def test_every_control_has_a_name(visit: Any, live: Any, tiny: Any) -> None:
    page = visit(live(tiny()))
    nameless = """() => [...document.querySelectorAll("button, input, select, textarea")].filter(control =>
        !(control.labels?.[0]?.textContent.trim() || control.textContent.trim() || control.getAttribute("aria-label")))
        .map(control => control.outerHTML)"""
    assert page.evaluate(nameless) == []
