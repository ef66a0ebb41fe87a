"""URLs that people give: only what jctd is willing to call."""

from urllib.parse import urlsplit


def check_url(text: str) -> str:
    """The URL, where a webhook may have it. Raises ValueError with the rule."""
    rule = "must be http:// or https:// with a host, without user, password and fragment, of printable ASCII"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(rule) from None
    plain = text.isascii() and text.isprintable() and " " not in text
    if not plain or parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(rule)
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError(rule)
    return text
