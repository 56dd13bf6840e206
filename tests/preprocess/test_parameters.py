from __future__ import annotations

from typing import Any

import pytest

from genai_pipeline.errors import OptionError
from genai_pipeline.metadata.model import ParameterSpec
from genai_pipeline.preprocess.parameters import read_parameters, together
from genai_pipeline.problems import Location

AT = Location("inference_metadata.yaml")
SPECS = {
    "steps": ParameterSpec(AT, "steps", "integer", default=20, minimum=1, maximum=100),
    "width": ParameterSpec(AT, "width", "integer", default=64, multiple_of=8),
    "scale": ParameterSpec(AT, "scale", "number", default=5.0),
    "fast": ParameterSpec(AT, "fast", "boolean", default=False),
    "style": ParameterSpec(AT, "style", "choice", default="plain", values=("plain", "bold")),
    "title": ParameterSpec(AT, "title", "string"),
}


def test_defaults_apply_and_what_has_none_is_required() -> None:
    values = read_parameters(SPECS, {"title": "x", "steps": 5})
    assert values["parameters.steps"] == 5
    assert values["parameters.fast"] is False
    with pytest.raises(OptionError, match="title"):
        read_parameters(SPECS, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("steps", 101),
        ("steps", 1.5),
        ("steps", True),
        ("width", 63),
        ("scale", "5"),
        ("fast", 1),
        ("width", 2**63),
        ("width", -(10**400)),
        ("scale", 10**400),
        pytest.param("style", 10**5000, id="unwritten"),
        ("style", "italic"),
        ("title", 3),
        ("stepz", 3),
    ],
)
def test_wrong_values_and_names_are_refused(name: str, value: Any) -> None:
    with pytest.raises(OptionError) as caught:
        read_parameters(SPECS, {"title": "x", name: value})
    assert caught.value.param == name


def test_parameters_among_inputs_and_by_themselves_are_one_set() -> None:
    assert together({"steps": 5}, {"fast": True}) == {"steps": 5, "fast": True}
    assert together({"steps": 5}, None) == {"steps": 5}
    with pytest.raises(OptionError, match="the parameter 'steps' is given twice"):
        together({"steps": 5}, {"steps": 5})
    with pytest.raises(OptionError, match="must map names to values, not 3"):
        together({}, 3)  # type: ignore[arg-type]


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(OptionError, match="no parameter '5'"):
        read_parameters(SPECS, {5: 1})  # type: ignore[dict-item]
