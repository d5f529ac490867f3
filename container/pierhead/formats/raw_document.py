"""Requests that are the bytes of one string, such as an image, a sound, or a serialised tf.Example."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pierhead.errors import UnsupportedMediaType
from pierhead.formats.dtypes import dtype_label
from pierhead.formats.predict_json import Layout, PredictInputs
from pierhead.formats.tensors import Array, Signature

__all__ = ["RawDocument"]

STRING = "DT_STRING"


@dataclass(frozen=True)
class RawDocument:
    """A request whose whole body is one element; `supported` is what a refusal recommends."""

    body: bytes
    media_type: str
    supported: str
    signature_name: str = ""

    def tensors(self, signature: Signature) -> PredictInputs:
        """Return the body as the signature's only input: a scalar, or an array of one element of its rank.

        Raises UnsupportedMediaType where the signature takes anything but one string input.
        """
        specs = list(signature.inputs.items())
        if len(specs) != 1 or specs[0][1].dtype != STRING:
            taken = ", ".join(f"{name}: {dtype_label(spec.dtype)}" for name, spec in sorted(specs))
            raise UnsupportedMediaType(
                f"Content-Type {self.media_type} is for a model with one string input, and this one takes "
                f"{taken or 'none'}; supported: {self.supported}"
            )
        ((name, spec),) = specs
        rank = 1 if spec.shape is None else len(spec.shape)
        element: Array = np.empty((1,) * rank, object)
        element[...] = self.body
        return PredictInputs({name: element}, Layout.ROW if rank else Layout.COLUMNAR)
