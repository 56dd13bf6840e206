"""What a Whisper model is made of, read from the variables of its file and checked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass

from genai_pipeline.errors import ImportModelError
from genai_pipeline.importers.ctranslate2.reader import ModelFile

KIND = "WhisperSpec"
_GELU = 3  # of CTranslate2's activations, by number: the one with the error function
_KERNEL = 3  # frames that each convolution sees


@dataclass(frozen=True, slots=True)
class WhisperConfig:
    """Geometry of encoder and decoder; both have the same width and heads."""

    mels: int
    width: int
    heads: int
    feed_forward: int
    encoder_layers: int
    decoder_layers: int
    states: int  # encoder positions of one window; one stands for two frames
    context_length: int  # decoder positions
    vocabulary: int

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.width // self.heads

    @property
    def frames(self) -> int:
        """Feature frames of one window: the second convolution takes every other one."""
        return 2 * self.states


def read_config(file: ModelFile) -> WhisperConfig:
    """The configuration of ``file``. Raises ImportModelError naming what is not supported."""
    if file.kind != KIND:
        raise ImportModelError(
            f"{file.path}: a model of kind '{file.kind}' is not supported", hint=f"supported: {KIND} (Whisper)"
        )
    _check_choices(file)
    vocabulary, width = _matrix(file, "decoder/embeddings/weight")
    states, _ = _matrix(file, "encoder/position_encodings/encodings")
    context_length, _ = _matrix(file, "decoder/position_encodings/encodings")
    feed_forward, _ = _matrix(file, "decoder/layer_0/ffn/linear_0/weight")
    mels = file.tensor("encoder/conv1/weight", width, -1, _KERNEL).shape[1]
    heads = file.number("decoder/num_heads")
    if heads < 1 or width % heads or file.number("encoder/num_heads") != heads:
        raise ImportModelError(f"{file.path}: {heads} heads do not fit a width of {width} in both encoder and decoder")
    return WhisperConfig(
        mels=mels,
        width=width,
        heads=heads,
        feed_forward=feed_forward,
        encoder_layers=file.count("encoder/layer_{}/self_attention/linear_0/weight"),
        decoder_layers=file.count("decoder/layer_{}/self_attention/linear_0/weight"),
        states=states,
        context_length=context_length,
        vocabulary=vocabulary,
    )


def _check_choices(file: ModelFile) -> None:
    """Refuse variants of the transformer that the graphs are not written for."""
    expected = {"activation": _GELU, "pre_norm": 1, "alibi": 0, "scale_embeddings": 0, "start_from_zero_embedding": 0}
    for name, wanted in expected.items():
        found = file.number(f"decoder/{name}", default=wanted)
        if found != wanted:
            raise ImportModelError(f"{file.path}: 'decoder/{name}' is {found}; supported: {wanted}")


def _matrix(file: ModelFile, name: str) -> tuple[int, int]:
    shape = file.shape(name)
    if len(shape) != 2:
        raise ImportModelError(f"{file.path}: '{name}' has shape {list(shape)}, expected a matrix")
    return shape[0], shape[1]
