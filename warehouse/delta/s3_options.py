"""The storage options of S3 with which obstore finds the same store and credentials as delta-rs.

obstore takes the same options as delta-rs, but it does not know all ways in which delta-rs finds credentials
and locks. With other ways there is no client (object_client.py), and delta-rs does the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from tidemark.warehouse.delta.object_client import ObjectClient

# Options by their names without "aws_", as obstore takes them.
_NAMES = {
    "access_key_id",
    "checksum_algorithm",
    "conditional_put",
    "container_authorization_token_file",
    "container_credentials_full_uri",
    "container_credentials_relative_uri",
    "default_region",
    "disable_tagging",
    "endpoint",
    "imdsv1_fallback",
    "metadata_endpoint",
    "region",
    "request_payer",
    "role_arn",
    "role_session_name",
    "secret_access_key",
    "server_side_encryption",
    "session_token",
    "skip_signature",
    "sse_bucket_key_enabled",
    "sse_customer_key_base64",
    "sse_kms_key_id",
    "unsigned_payload",
    "virtual_hosted_style_request",
    "web_identity_token_file",
}
_OTHER_SPELLINGS = {"endpoint_url": "endpoint", "token": "session_token"}
_CLIENT_NAMES = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "http1_only",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "timeout",
    "user_agent",
}
# With these delta-rs finds the store or credentials, or keeps two commits apart, in a way of its own.
_ONLY_DELTA_RS = {
    "endpoint_url_s3",
    "force_credential_load",
    "iam_role_arn",
    "profile",
    "s3_allow_unsafe_rename",
    "s3_assume_role_arn",
    "s3_locking_provider",
}
_PROFILES = (
    ("AWS_CONFIG_FILE", "~/.aws/config"),
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
)
# Each group is a way to credentials that does not depend on profiles.
_CREDENTIALS = (
    {"access_key_id", "secret_access_key"},
    {"web_identity_token_file", "role_arn"},
    {"container_credentials_relative_uri"},
    {"container_credentials_full_uri"},
)


def s3_client_at(uri: str, options: Mapping[str, str] | None) -> ObjectClient | None:
    """The objects at an address with delta-rs' storage options; None if only delta-rs knows the way there."""
    found = _configured(uri, options or {})
    with suppress(OSError):  # obstore refuses a value; delta-rs takes it, or says what is wrong with it
        return None if found is None else ObjectClient(uri, *found)
    return None


def _configured(uri: str, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]] | None:
    """The configuration of obstore's store and of its client."""
    plain = {name.lower().removeprefix("aws_"): value for name, value in options.items() if value}
    plain = {_OTHER_SPELLINGS.get(name, name): value for name, value in plain.items()}
    config = {name: value for name, value in plain.items() if name in _NAMES}
    is_known = (
        uri.startswith("s3://")
        and find_spec("obstore") is not None  # a cluster may lack it
        and not plain.keys() & _ONLY_DELTA_RS
        and config.get("conditional_put", "etag").lower() == "etag"
        and (any(group <= config.keys() for group in _CREDENTIALS) or not _has_profiles(options))
        and config.keys() & {"endpoint", "region", "default_region"}  # delta-rs knows other ways to a region
    )
    return (config, {name: plain[name] for name in plain.keys() & _CLIENT_NAMES}) if is_known else None


def _has_profiles(options: Mapping[str, str]) -> bool:
    places = (options.get(variable) or path for variable, path in _PROFILES)
    return any(Path(place).expanduser().exists() for place in places)
