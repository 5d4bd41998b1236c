"""URLs in messages and records: without the passwords, keys and signatures in them."""

import re

# A password may have an @, and a user's name may be a token.
_USER = re.compile(r"(?<=://)[^/?#\s'\"]*@")
_PARAMETER = re.compile(
    r"([?&][^=&#\s]*(?:signature|credential|token|secret|passw|pwd|auth|api[-_]?key|access[-_]?key)[^=&#\s]*=|[?&]sig=)"
    r"[^&#\s'\"]+",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """Return a text in which `***` stands for what URLs have of users, passwords, keys and signatures."""
    return _PARAMETER.sub(r"\1***", _USER.sub("***@", text)) if "://" in text else text
