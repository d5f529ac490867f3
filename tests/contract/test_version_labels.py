from __future__ import annotations

import pytest

from pierhead.contract.version_labels import VersionLabel, VersionLabels, parse_version_labels


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("stable=1", [VersionLabel(None, "stable", 1)]),
        ("stable=1, canary=2", [VersionLabel(None, "stable", 1), VersionLabel(None, "canary", 2)]),
        ("b:stable=7", [VersionLabel("b", "stable", 7)]),
        ("stable=1,b:stable=1", [VersionLabel(None, "stable", 1), VersionLabel("b", "stable", 1)]),
        ("größe x:v.1=007", [VersionLabel("größe x", "v.1", 7)]),
    ],
)
def test_labels_are_pairs_between_commas(text: str, entries: list[VersionLabel]) -> None:
    labels = parse_version_labels(text)

    assert VersionLabels(tuple(entries)) == labels
    assert labels == parse_version_labels(str(labels))


@pytest.mark.parametrize(
    "text",
    [
        "stable",
        "=1",
        "stable=",
        "stable=x",
        "stable=-1",
        "a/b=1",
        ":a=1",
        "a=1,",
        "a=1,a=2",
        "a=9223372036854775808",
    ],
)
def test_text_that_is_no_list_of_labels_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must "):
        parse_version_labels(text)


def test_labels_without_a_model_are_the_default_models() -> None:
    labels = parse_version_labels("stable=1,b:stable=2,a:old=3")

    assert labels.of_model("a", "a") == {"stable": 1, "old": 3}
    assert labels.of_model("b", "a") == {"stable": 2}
    assert labels.of_model("c", "a") == {}
