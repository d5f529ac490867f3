from __future__ import annotations

import pytest

from pierhead.contract.attributes import Attributes, parse_attributes
from pierhead.errors import Code, ServingError


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", Attributes()),
        ("tfs-model-name=b", Attributes(model="b")),
        ("tfs-model-name=b,tfs-model-version=1", Attributes(model="b", version=1)),
        ("tfs-method=classify", Attributes(method="classify")),
        (" tfs-model-name = b ", Attributes(model="b")),
        ("\ttfs-model-name=b\t,tfs-method= regress", Attributes(model="b", method="regress")),
        ("foo,=,a=b=c", Attributes()),
        ("threshold=0.7,tenant=a", Attributes()),
        ("foo,tfs-model-version=007,=", Attributes(version=7)),
        ("tfs-model-version=9223372036854775807", Attributes(version=2**63 - 1)),
        ("tfs-model-version=0", Attributes(version=0)),
        ("tfs-model-name=a,tfs-model-name=b", Attributes(model="b")),
        ("tfs-model-name=" + "a" * 255, Attributes(model="a" * 255)),
        ("tfs-model-name=half_plus.two-3", Attributes(model="half_plus.two-3")),
        ("TFS-MODEL-NAME=b", Attributes()),
        ("tfs-model-version-label=stable", Attributes(label="stable")),
        ("tfs-model-name=b, tfs-model-version-label = v.1 ", Attributes(model="b", label="v.1")),
    ],
)
def test_header_is_pairs_between_commas(header: str, expected: Attributes) -> None:
    attributes = parse_attributes(header)

    assert expected == attributes


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("tfs-method=delete", "tfs-method"),
        ("tfs-method=PREDICT", "tfs-method"),
        ("tfs-method=", "tfs-method"),
        ("tfs-model-name=", "tfs-model-name"),
        ("tfs-model-name=../x", "tfs-model-name"),
        ("tfs-model-name=a/b", "tfs-model-name"),
        ("tfs-model-name=a=b", "tfs-model-name"),
        ("tfs-model-name=b\n", "tfs-model-name"),
        ("tfs-model-name=é", "tfs-model-name"),
        ("tfs-model-name=" + "a" * 256, "tfs-model-name"),
        ("tfs-model-version=-1", "tfs-model-version"),
        ("tfs-model-version=1.0", "tfs-model-version"),
        ("tfs-model-version=١", "tfs-model-version"),
        ("tfs-model-version=9223372036854775808", "tfs-model-version"),
        ("tfs-model-version=latest", "tfs-model-version"),
        ("tfs-model-version=" + 5000 * "9", "tfs-model-version"),
        ("tfs-model-version-label=", "tfs-model-version-label"),
        ("tfs-model-version-label=a/b", "tfs-model-version-label"),
        ("tfs-model-version-label=a:predict", "tfs-model-version-label"),
    ],
)
def test_ill_value_is_refused_by_its_key(header: str, key: str) -> None:
    with pytest.raises(ServingError, match=f"^custom attribute {key}=") as refusal:
        parse_attributes(header)

    assert refusal.value.code == Code.INVALID_ARGUMENT


def test_version_and_label_exclude_each_other() -> None:
    with pytest.raises(ServingError, match="exclude each other") as refusal:
        parse_attributes("tfs-model-version=1,tfs-model-version-label=stable")

    assert refusal.value.code == Code.INVALID_ARGUMENT
