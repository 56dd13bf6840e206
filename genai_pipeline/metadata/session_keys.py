"""Names that ONNX Runtime knows: execution providers, and the configuration entries of a session.

Providers and newer versions add entries of their own, so an unknown one is only a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PROVIDERS: Final[Mapping[str, str]] = {  # our name -> the runtime's
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "nv_tensorrt_rtx": "NvTensorRTRTXExecutionProvider",
    "dml": "DmlExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "qnn": "QNNExecutionProvider",
    "migraphx": "MIGraphXExecutionProvider",
    "rocm": "ROCMExecutionProvider",
    "webgpu": "WebGpuExecutionProvider",
    "xnnpack": "XnnpackExecutionProvider",
    "dnnl": "DnnlExecutionProvider",
    "acl": "ACLExecutionProvider",
    "cann": "CANNExecutionProvider",
    "vitisai": "VitisAIExecutionProvider",
    "nnapi": "NnapiExecutionProvider",
    "vsinpu": "VSINPUExecutionProvider",
    "rknpu": "RknpuExecutionProvider",
    "js": "JsExecutionProvider",
    "webnn": "WebNNExecutionProvider",
    "azure": "AzureExecutionProvider",
}
_SHORT_NAMES: Final = {long: short for short, long in PROVIDERS.items()}
DEFAULT_PROVIDER: Final = "cpu"  # of a component that lists none
CPU_OPTIONS: Final = frozenset({"use_arena"})  # all that the CPU provider takes

DATA_FOLDER: Final = "session.model_external_initializers_file_folder_path"
ASSIGNMENT: Final = "session.record_ep_graph_assignment_info"
CONTEXTS: Final = "ep.context_enable"  # "1": what a provider compiled is kept for the next load
_CONTEXT_PLACE: Final = "compiled graphs lie in the user's cache"
# Entries that the backend decides itself; a package that sets one would be ignored or break the placement rules.
RESERVED: Final[Mapping[str, str]] = {
    "session.use_per_session_threads": "all graphs share one thread pool",
    "session.intra_op_num_threads": "all graphs share one thread pool; give threads= to load",
    "session.inter_op_num_threads": "all graphs share one thread pool; give threads= to load",
    DATA_FOLDER: "external data is resolved by the package's own rule",
    "ep.context_file_path": _CONTEXT_PLACE,
    "ep.context_embed_mode": _CONTEXT_PLACE,
    "ep.context_model_external_initializers_file_name": _CONTEXT_PLACE,
    ASSIGNMENT: "it is always on: it tells where nodes run",
}

FLAGS: Final = frozenset(  # entries that are "0" or "1"
    {
        "ep.context_embed_mode",
        "ep.context_enable",
        "mlas.disable_kleidiai",
        "mlas.enable_gemm_fastmath_arm64_bfloat16",
        "mlas.use_lut_gemm",
        "optimization.enable_cast_chain_elimination",
        "optimization.enable_gelu_approximation",
        "session.allow_released_opsets_only",
        "session.debug_layout_transformation",
        "session.disable_aot_function_inlining",
        "session.disable_cpu_ep_fallback",
        "session.disable_double_qdq_remover",
        "session.disable_model_compile",
        "session.disable_prepacking",
        "session.disable_qdq_constant_folding",
        "session.disable_quant_qdq",
        "session.enable_dq_matmulnbits_fusion",
        "session.enable_quant_qdq_cleanup",
        "session.fail_on_suboptimal_compiled_model",
        "session.force_spinning_stop",
        "session.inter_op.allow_spinning",
        "session.intra_op.allow_spinning",
        "session.qdqisint8allowed",
        "session.save_external_prepacked_constant_initializers",
        "session.set_denormal_as_zero",
        "session.strict_shape_type_inference",
        "session.use_device_allocator_for_initializers",
        "session.use_env_allocators",
        "session.use_memory_mapped_ort_model",
        "session.use_ort_model_bytes_directly",
        "session.use_ort_model_bytes_for_initializers",
        "session.x64quantprecision",
    }
)
OTHERS: Final = frozenset(
    {
        "ep.context_file_path",
        "ep.context_model_external_initializers_file_name",
        "ep.context_node_name_prefix",
        "ep.nnapi.partitioning_stop_ops",
        "ep.share_ep_contexts",
        "ep.stop_share_ep_contexts",
        "mlas.qnbit.force_fp32",
        "optimization.constant_folding_max_output_size_in_bytes",
        "optimization.disable_specified_optimizers",
        "optimization.minimal_build_optimizations",
        "session.collect_node_memory_stats_to_file",
        "session.compile_only",
        "session.dynamic_block_base",
        "session.graph_optimizations_loop_level",
        "session.inter_op.spin_backoff_max",
        "session.inter_op.spin_duration_us",
        "session.intra_op.spin_backoff_max",
        "session.intra_op.spin_duration_us",
        "session.intra_op_thread_affinities",
        "session.load_model_format",
        "session.node_partition_config_file",
        "session.optimized_model_external_initializers_file_name",
        "session.optimized_model_external_initializers_min_size_in_bytes",
        "session.qdq_matmulnbits_accuracy_level",
        "session.qdq_matmulnbits_block_size",
        "session.resource_cuda_partitioning_settings",
        "session.save_model_format",
        "session.use_deterministic_compute",
    }
)
KEYS: Final = FLAGS | OTHERS | frozenset(RESERVED)


def short_provider(name: str) -> str:
    """Our name of a provider; a name of the runtime's that has none stays as it is."""
    return _SHORT_NAMES.get(name, name if name.endswith("ExecutionProvider") else name.lower())
