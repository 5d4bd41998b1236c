"""URLs in messages and records, without their passwords, keys and signatures."""

import re

# A password may contain an @, and a user name may be a token.
_USER = re.compile(r"(?<=://)[^/?#\s'\"]*@")
_PARAMETER = re.compile(
    r"([?&][^=&#\s]*(?:signature|credential|token|secret|passw|pwd|auth|api[-_]?key|access[-_]?key)[^=&#\s]*=|[?&]sig=)"
    r"[^&#\s'\"]+",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Return a text in which `***` replaces the users, passwords, keys and signatures in URLs."""
    return _PARAMETER.sub(r"\1***", _USER.sub("***@", text)) if "://" in text else text
