"""The steps of image programs, for the runner of programs."""

from __future__ import annotations

from typing import Final

from genai_pipeline.preprocess.image.crop import CROP, PAD
from genai_pipeline.preprocess.image.decode import DECODE
from genai_pipeline.preprocess.image.numbers import LAYOUT, NORMALIZE, RESCALE, check_channels, finish
from genai_pipeline.preprocess.image.patchify import PATCHIFY
from genai_pipeline.preprocess.image.picture import ARRANGED, NUMBERS, PATCHES, TILE_NUMBERS
from genai_pipeline.preprocess.image.resize import RESIZE
from genai_pipeline.preprocess.image.tile import TILE
from genai_pipeline.preprocess.program_steps import StepKit, by_name

STEPS: Final = by_name(DECODE, RESIZE, CROP, PAD, TILE, RESCALE, NORMALIZE, LAYOUT, PATCHIFY)
KIT: Final = StepKit(STEPS, frozenset({NUMBERS, TILE_NUMBERS, ARRANGED, PATCHES}), finish, check=check_channels)
