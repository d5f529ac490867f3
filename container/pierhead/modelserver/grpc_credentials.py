"""What the gRPC port proves itself with: nothing, certificates of an SSLConfig file, or Google's ALTS.

The HTTP port is always plain. Source: TensorFlow Serving's contract, section 3.
"""

from __future__ import annotations

from pathlib import Path

import grpc
from google.protobuf import text_format

from pierhead.errors import Code, ServingError
from pierhead.modelserver.declared_messages import declare_messages

__all__ = ["read_credentials"]

MESSAGES = {
    "SSLConfig": {
        "server_key": (1, "string"),
        "server_cert": (2, "string"),
        "custom_ca": (3, "string"),
        "client_verify": (4, "bool"),
    }
}


def read_credentials(ssl_config_file: str, *, use_alts: bool = False) -> grpc.ServerCredentials | None:
    """Return the credentials that the flags ask for, None for a plain port.

    Raises ServingError INVALID_ARGUMENT where the file cannot be read or lacks key or certificate.
    """
    if use_alts:
        return grpc.alts_server_credentials()
    if not ssl_config_file:
        return None
    config = declare_messages("tensorflow.serving", MESSAGES)["SSLConfig"]()
    try:
        text_format.Parse(Path(ssl_config_file).read_text(), config)
    except (OSError, UnicodeDecodeError, text_format.ParseError) as problem:
        message = f"Invalid protobuf file: '{ssl_config_file}' ({problem})"
        raise ServingError(Code.INVALID_ARGUMENT, message) from problem
    if not (config.server_key and config.server_cert):
        message = f"server_key and server_cert must both be set in '{ssl_config_file}'"
        raise ServingError(Code.INVALID_ARGUMENT, message)
    if config.client_verify and not config.custom_ca:
        message = f"client_verify needs custom_ca in '{ssl_config_file}'"
        raise ServingError(Code.INVALID_ARGUMENT, message)
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )
