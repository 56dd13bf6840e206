// Puts the page together: packages, key, views.

import { apiKey, getJson } from "./api.js";
import { Chat } from "./chat.js";
import { byId, el } from "./dom.js";
import { Gauges } from "./gauges.js";
import { GraphView } from "./graph_view.js";
import { Settings } from "./settings.js";

const picker = byId("package");
const model = () => picker.value;
const wide = matchMedia("(min-width: 900px)");
const tabs = [...document.querySelectorAll('[role="tab"]')];
const graph = new GraphView();
const gauges = new Gauges(model);
new Chat(model, new Settings(byId("parameters")));

/** Show one of the views; on wide screens the chat stays beside it. */
function show(view) {
  document.body.dataset.view = view;
  for (const tab of tabs) {
    const on = tab.dataset.view === view;
    tab.setAttribute("aria-selected", String(on));
    tab.tabIndex = on ? 0 : -1;
  }
  gauges.watch(view === "load");
  if (view === "graph") graph.show(model());
}

function turn(event) {
  const visible = tabs.filter((tab) => tab.offsetParent !== null);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const next = visible.at((visible.indexOf(event.target) + step) % visible.length);
  next.focus();
  show(next.dataset.view);
}

function notice(text) {
  byId("notice").textContent = text ?? "";
  byId("notice").hidden = !text;
}

/** Read which packages there are; without the right key the server says so. */
async function connect() {
  try {
    const { data } = await getJson("v1/models");
    const talking = data.filter(({ tasks }) => tasks.includes("generate"));
    picker.replaceChildren(...talking.map(({ id }) => el("option", { value: id }, id)));
    picker.disabled = false;
    notice(null);
    show(document.body.dataset.view);
  } catch (problem) {
    picker.replaceChildren();
    picker.disabled = true;
    notice(problem.status === 401 ? `${problem.message}. Enter it above.` : problem.message);
    if (problem.status === 401) byId("key").focus();
  }
}

byId("key").value = apiKey.get();
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  apiKey.set(byId("key").value.trim());
  connect();
});
picker.addEventListener("change", () => show(document.body.dataset.view));
for (const tab of tabs) {
  tab.addEventListener("click", () => show(tab.dataset.view));
  tab.addEventListener("keydown", turn);
}
document.addEventListener("show-view", (event) => show(event.detail));
const fold = () => {
  const { view } = document.body.dataset;
  show(wide.matches && view === "chat" ? "settings" : view);
};
wide.addEventListener("change", fold);
show(wide.matches ? "settings" : "chat");
connect();
