"""The names of host operations and where they may run; their code and parameters are elsewhere."""

from __future__ import annotations

from typing import Final

_GROUPS: Final = (
    # image, audio, tensor and text programs
    "decode resize crop pad tile patchify rescale normalize layout mono resample window log_mel standardize clip "
    "split_text phonemes map_ids",
    # shape
    "concat stack split slice take reshape transpose pad sum affine fill repeat_rows last_rows coalesce",
    # vectors
    "argmax top_k softmax sigmoid pool normalize similarity truncate",
    # masks, positions and prompt rows
    "mask attention_mask grid_positions position_mask splice placed arrange_tiles",
    # text, and choices in a body
    "tokenize detokenize render join words spans pick_spans parse_regions extract",
    "sample choose_among unmask last_tokens delay undelay",
    # speech and vision
    "ctc_decode speech_segments align_words stitch transcript_times",
    "boxes_from_map crop_quads rotate_if detections restore_size",
    # diffusion: steps and schedules
    "noise schedule_start schedule_scale schedule_step gaussian unpatchify",
    "euler euler_ancestral ddim dpmpp_2m lcm flow_euler",
    # writers
    "png jpeg wav srt vtt json npy",
)
OPERATIONS: Final = frozenset(" ".join(_GROUPS).split())
