"""State entries of a component with their geometry: taken from the graph, checked against what is declared.

Which ports an entry means is decided in ``kv_ports``, what their axes are in ``kv_axes``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from genai_pipeline.graph.kv_axes import LENGTH, of_layer, tensor_shape
from genai_pipeline.graph.kv_given import fixed_length, given_port, port_fault
from genai_pipeline.graph.kv_ports import StatePort, pair_ports
from genai_pipeline.graph.plan import StatePlan, StateTensor
from genai_pipeline.graph.signature import GraphSignature, joined
from genai_pipeline.graph.uses import below
from genai_pipeline.metadata.model import ComponentSpec, KvSpec
from genai_pipeline.problems import Problems, folded

_SIZED = frozenset({"fixed", "in_place", "scatter"})  # updates under which a state keeps its length


def resolve_state(
    component: ComponentSpec,
    signature: GraphSignature,
    problems: Problems,
    signature_later: GraphSignature | None = None,
    others: Mapping[str, GraphSignature] | None = None,
) -> tuple[StatePlan, ...]:
    """The state entries of a component; everything that does not fit the graph is reported to ``problems``.

    ``signature_later`` is that of the graph for later runs: only it has to have the past ports, as nothing is there
    to be read in the first run. ``others`` has the signatures of components that ``from`` may name.
    """
    merged = signature if signature_later is None else _merged(component, signature, signature_later, problems)
    plans = tuple(_resolve_entry(component, kv, merged, others or {}, problems) for kv in component.kv)
    _report_shared_ports(component, plans, problems)
    if signature_later is not None:
        for kv, plan in zip(component.kv, plans, strict=True):
            _check_first_run(component, kv, plan, signature, problems)
    return plans


def _check_first_run(
    component: ComponentSpec, kv: KvSpec, plan: StatePlan, first: GraphSignature, problems: Problems
) -> None:
    """The graph for first runs writes the state, and where that is one buffer takes it too."""
    written = [tensor.present for tensor in plan.tensors if plan.source is None or plan.update != "fixed"]
    shared = plan.update in ("in_place", "scatter")
    taken = [tensor.past for tensor in plan.tensors if shared]
    lost = next((port for port in written if port is not None and port not in first.outputs), None)
    if lost is not None:
        message = f"{component.model} has no output '{lost}': what its run adds to the state would be lost"
        problems.error(kv.at, "kv.pair", message, "export the graph for first runs with its cache")
    lack = next((port for port in taken if port not in first.inputs), None)
    if lack is not None:
        message = f"{component.model} has no input '{lack}', so that it cannot write into the buffer of '{plan.update}'"
        problems.error(kv.at, "kv.pair", message, "graphs that give back what they add go by update: append")


def _merged(
    component: ComponentSpec, first: GraphSignature, later: GraphSignature, problems: Problems
) -> GraphSignature:
    """One set of ports of two graphs; ports that both have must be the same."""
    found = Problems()
    pairs = ((first.inputs, later.inputs), (first.outputs, later.outputs))
    for ours, theirs in pairs:
        for name in sorted(ours.keys() & theirs.keys()):
            fault = port_fault(ours[name], theirs[name])
            if fault:
                message = f"'{name}' differs between {component.model} and {component.model_later}: {fault}"
                found.error(below(component.at, "model"), "kv.pair", message, "both graphs work on one state")
    problems.extend(folded(found, "port"))
    return joined(first, later)


def _resolve_entry(
    component: ComponentSpec,
    kv: KvSpec,
    signature: GraphSignature,
    others: Mapping[str, GraphSignature],
    problems: Problems,
) -> StatePlan:
    """One state entry."""
    source = (kv.source or "").partition(".")[0]
    giver = others.get(source)
    written_there = giver is not None and kv.update == "fixed"
    presents = {**signature.outputs, **giver.outputs} if giver is not None and written_there else signature.outputs
    unseen = kv.source is not None and giver is None  # that component is at fault, and reported
    paired = replace(kv, present=None) if unseen else kv
    ports = pair_ports(paired, signature, component.model or component.name, presents, problems)
    layers = tuple(dict.fromkeys(port.layer for port in ports))
    _check_list_lengths(kv, layers, problems)
    tensors = []
    found = Problems()  # of single tensors: what is wrong with one of many layers is mostly wrong with all
    for port in ports:
        index = layers.index(port.layer)
        _check_dtypes(kv, port, index, found)
        shape = tensor_shape(kv, port, index, found)
        _check_pair(kv, port, shape, found)
        _check_growth(kv, port, signature.grown, found)
        present = port.present.name if port.present else None
        given = None if giver is None else given_port(kv, port, giver, shape, found)
        tensors.append(
            StateTensor(
                port.layer,
                port.part,
                port.past.name,
                present,
                port.past.dtype,
                shape,
                given=None if given is None else given.name,
                length=fixed_length(kv, shape, port.past, given or port.present),
            )
        )
    problems.extend(folded(found, "tensor"))
    return StatePlan(
        update=kv.update,
        tensors=tuple(tensors),
        window=_windows(kv, ports, layers, signature.windows, problems),
        initial=kv.initial or 0.0,
        source=kv.source,
        keep_session=kv.keep == "session",
    )


def _report_shared_ports(component: ComponentSpec, plans: Sequence[StatePlan], problems: Problems) -> None:
    """A port belongs to one entry."""
    owners: dict[str, int] = {}
    for index, plan in enumerate(plans):
        shared = [tensor.past for tensor in plan.tensors if owners.setdefault(tensor.past, index) != index]
        if shared:
            message = f"'{shared[0]}' belongs to another kv entry already"
            hint = "list the layers of each entry: layers: [0, 2, 4]"
            problems.error(below(component.kv[index].at, "past"), "kv.overlap", message, hint)


def _check_list_lengths(kv: KvSpec, layers: Sequence[int], problems: Problems) -> None:
    """Geometry given as a list has one entry per layer."""
    for key in ("heads", "head_dim", "dtype", "window"):
        value = getattr(kv, key)
        if layers and isinstance(value, tuple) and len(value) != len(layers):
            message = f"{key}: has {len(value)} entries for {len(layers)} layers"
            problems.error(below(kv.at, key), "kv.layers", message, "give one value, or one per layer")


def _check_dtypes(kv: KvSpec, port: StatePort, index: int, problems: Problems) -> None:
    """The graph's dtype counts, per tensor: keys and values may differ, a past and its present may not."""
    declared = of_layer(kv.dtype, index)
    if declared is not None and declared != port.past.dtype:
        message = f"dtype: {declared} is declared; '{port.past.name}' is {port.past.dtype}"
        problems.error(below(kv.at, "dtype"), "kv.dtype", message, "leave it out: the graph's dtype counts")
    if port.present is not None and port.present.dtype != port.past.dtype:
        message = f"'{port.past.name}' is {port.past.dtype}, but '{port.present.name}' is {port.present.dtype}"
        problems.error(below(kv.at, "present"), "kv.dtype", message, "a state goes back in as it came out")


def _check_pair(kv: KvSpec, port: StatePort, shape: Sequence[int | str], problems: Problems) -> None:
    """Past and present have the same axes; only along the tokens may they differ, and not for a fixed buffer."""
    if port.present is None or port.present.shape is None or port.past.shape is None or not shape:
        return
    free = [index for index, axis in enumerate(shape) if axis == LENGTH and kv.update != "scatter"]
    fault = port_fault(port.past, port.present, free)
    if fault:
        message = f"'{port.past.name}' and '{port.present.name}' do not fit each other: {fault}"
        hint = "scatter writes into a buffer of one size" if kv.update == "scatter" else ""
        problems.error(below(kv.at, "present"), "kv.shape", message, hint)


def _check_growth(kv: KvSpec, port: StatePort, grown: Mapping[str, tuple[str, str]], problems: Problems) -> None:
    """What the graph makes longer with each run may not be kept as it was, nor what it copies be one buffer."""
    past, op = grown.get(port.present.name, ("", "")) if port.present else ("", "")
    sized = _SIZED if op == "Concat" else {"fixed"}  # attention of its own may write into a buffer of one size
    if past == port.past.name and kv.update in sized and port.present:
        message = f"update: {kv.update} is declared, but {op} makes '{port.present.name}' of '{past}' and new tokens"
        problems.error(below(kv.at, "update"), "kv.update", message, "say update: append")


def _windows(
    kv: KvSpec, ports: Sequence[StatePort], layers: Sequence[int], known: Mapping[str, int | None], problems: Problems
) -> tuple[int | None, ...]:
    """The attention window of each layer, as far as the graph shows one; what is declared beyond that is reported.

    A window that no operator shows is not used: keeping all tokens is right for any graph.
    """
    windows: list[int | None] = []
    conflicts: list[str] = []
    for index, layer in enumerate(layers):
        declared = of_layer(kv.window, index)
        name = next((port.past.name for port in ports if port.layer == layer and port.past.name in known), None)
        used = known[name] if name is not None else None
        if kv.window is not None and used != declared:
            shown = used or ("none" if name is not None else "no operator that shows one")
            conflicts.append(f"layer {layer}: {declared or 'none'} declared, {shown} in the graph")
        windows.append(used)
    if conflicts:
        others = len(conflicts) - 1
        more = f" (and {others} more layer{'s' * (others > 1)})" if others else ""
        message = f"window: differs from the graph: {conflicts[0]}{more}"
        problems.warning(below(kv.at, "window"), "kv.window", message, "the graph decides; leave window: out")
    return tuple(windows) if any(window is not None for window in windows) else ()
