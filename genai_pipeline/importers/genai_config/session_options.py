"""``session_options`` of a part: providers with their options and configuration entries of the session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genai_pipeline.importers.config_node import ConfigNode
from genai_pipeline.importers.report import ImportReport
from genai_pipeline.metadata.session_keys import DEFAULT_PROVIDER, PROVIDERS, RESERVED
from genai_pipeline.problems import nearest, one_of

_DROPPED: Mapping[str, str] = {
    "intra_op_num_threads": "threads are up to who loads the package (threads=)",
    "inter_op_num_threads": "threads are up to who loads the package (threads=)",
    "enable_cpu_mem_arena": "memory is managed here",
    "enable_mem_pattern": "memory is managed here",
    "use_env_allocators": "memory is managed here",
    "log_id": "logging is managed here",
    "log_severity_level": "logging is managed here",
    "log_verbosity_level": "logging is managed here",
    "enable_profiling": "--profile does that",
    "graph_optimization_level": "the runtime optimises as much as it can; the results are the same",
    "ep_context_embed_mode": "compiled graphs lie in the user's cache",
    "ep_context_file_path": "compiled graphs lie in the user's cache",
}
_ENTRIES: Mapping[str, str] = {
    "ep_context_enable": "ep.context_enable",
    "disable_cpu_ep_fallback": "session.disable_cpu_ep_fallback",
    "disable_quant_qdq": "session.disable_quant_qdq",
    "enable_quant_qdq_cleanup": "session.enable_quant_qdq_cleanup",
}
_GRAPH_CAPTURE = ("enable_cuda_graph", "enable_graph_capture", "enableGraphCapture", "nv_cuda_graph_enable")


def read_session(part: ConfigNode, report: ImportReport) -> dict[str, Any]:
    """The ``session`` entry of a component: {} where nothing needs saying. Every key is reported."""
    options = part.mapping("session_options")
    entries: dict[str, Any] = {}
    for item in options.items():
        key = item.path[len(options.path) + 1 :]
        if key != "provider_options":
            _entry(key, item, entries, report)
    session = _providers(options, report)
    if entries:
        session["config"] = entries
    if "run_options" in part:
        report.dropped(part.file, part.at("run_options"), "how runs are made is managed here")
    return session


def _entry(key: str, item: ConfigNode, entries: dict[str, Any], report: ImportReport) -> None:
    if key in _DROPPED or key in RESERVED:
        report.dropped(item.file, item.path, _DROPPED.get(key) or RESERVED[key])
    elif key in _ENTRIES:
        item.checked(isinstance(item.value, bool), "true or false")
        entries[_ENTRIES[key]] = "1" if item.value else "0"
        report.mapped(item.file, item.path, f"session.config.{_ENTRIES[key]}")
    elif key == "custom_ops_library":
        hint = "export the model without custom operators"
        report.refused(item.file, item.path, f"operators of a library of one's own ({item.shown}) cannot be used", hint)
    elif isinstance(item.value, str):  # everything else goes to the session as it is, there and here
        entries[key] = item.value
        report.mapped(item.file, item.path, f"session.config.{key}")
    else:
        report.dropped(item.file, item.path, "it is no session option that onnxruntime-genai knows")


def _providers(options: ConfigNode, report: ImportReport) -> dict[str, Any]:
    """Providers in order, the CPU last as there; {} when it is the only one."""
    names: list[str] = []
    given: dict[str, Any] = {}
    listed = options.get("provider_options")
    if listed is not None:
        listed.checked(isinstance(listed.value, list), "a list of mappings, each with the options of a provider")
    for item in listed.items() if listed is not None else ():
        item.checked(isinstance(item.value, dict), "a mapping from the provider's name to its options")
        for theirs in item.keys:
            provider = item.mapping(theirs)
            name = _name(theirs)
            if name not in PROVIDERS:
                hint = nearest(theirs, PROVIDERS) or f"known are: {one_of(PROVIDERS, len(PROVIDERS))}"
                report.refused(item.file, provider.path, f"'{theirs}' is no provider that is known", hint)
            names.append(name)
            kept = {key: value for key, value in provider.value.items() if key not in _GRAPH_CAPTURE}
            if kept and name != DEFAULT_PROVIDER:
                given[name] = kept
            for key in sorted(set(provider.value) - set(kept)):
                report.dropped(
                    item.file, provider.at(key), "capturing graphs needs inputs of one size; it is speed only"
                )
    if listed is not None:
        shown = ", ".join(names) or "none, which means the CPU"
        report.mapped(listed.file, listed.path, f"session.providers and provider_options ({shown})")
    if not [name for name in names if name != DEFAULT_PROVIDER]:
        return {}
    ordered = list(dict.fromkeys([*names, DEFAULT_PROVIDER]))
    return {"providers": ordered, **({"provider_options": given} if given else {})}


def _name(theirs: str) -> str:
    """Our name of a provider; theirs differ in case and spelling (``DML``, ``NvTensorRtRtx``)."""
    plain = theirs.lower().removesuffix("executionprovider").replace("_", "")
    ours = {name.replace("_", ""): name for name in PROVIDERS}
    return ours.get(plain, theirs)
