"""What is shown once a container is ready: its address, its models, and a request to try."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pierhead_sagemaker.inspection import Inspection, version_text
from pierhead_sagemaker.sample_request import curl_with_body, curl_with_sample
from pierhead_sagemaker.signatures import Signature

__all__ = ["welcome_text"]


def welcome_text(
    address: str,
    inspection: Inspection,
    signatures: Mapping[str, Sequence[Signature] | None],
    *,
    folder: Path,
) -> str:
    """Return the text; a request body too long for a command line is written into `folder`.

    `signatures` are those of each model by its name, None where the model server did not tell them.
    """
    lines = [f"Serving at {address}; Ctrl-C stops it.", ""]
    for model in inspection.artifact.models:
        mark = " (the default)" if model is inspection.default and len(inspection.artifact.models) > 1 else ""
        lines.append(f"{model.name}, {version_text(model)}{mark}")
        lines.extend(_signature_lines(signatures[model.name]))
    lines.append("")
    known = signatures[inspection.default.name] if inspection.default is not None else None
    lines.extend(_request_lines(f"{address}/invocations", inspection, known, folder=folder))
    return "\n".join(lines)


def _signature_lines(signatures: Sequence[Signature] | None) -> Iterator[str]:
    if signatures is None:
        yield "  its signatures are not known: the model server does not tell them"
        return
    width = max((len(signature.name) for signature in signatures), default=0)
    yield from (f"  {signature.name:<{width}}  {signature}" for signature in signatures)


def _request_lines(
    url: str, inspection: Inspection, signatures: Sequence[Signature] | None, *, folder: Path
) -> Iterator[str]:
    if inspection.sample is not None:
        yield "Try it:"
        yield f"  {curl_with_sample(url, inspection.sample)}"
    elif signatures:
        yield "Try it:"
        yield f"  {curl_with_body(url, signatures[0], folder)}"
        if inspection.hook_script is not None:
            yield "This body is made for the model itself; the hooks in code/ may want another one."
    else:
        yield f"Requests go to {url}; a file sample.json beside the model would be shown here as a request."
