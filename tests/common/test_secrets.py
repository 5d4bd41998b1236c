import pytest

from dmlcpu.common.secrets import without_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pass@host/x.npy", "https://***@host/x.npy"),
        ("'https://token@host:80/x.npy': no", "'https://***@host:80/x.npy': no"),
        ("ftp://u:p@ss@host", "ftp://***@host"),
        ("simplecache::https://u:p@h/x and https://v:q@h/y", "simplecache::https://***@h/x and https://***@h/y"),
        ("https://h/x?a=1&X-Amz-Signature=ab%2Fc&b=2#f", "https://h/x?a=1&X-Amz-Signature=***&b=2#f"),
        ("https://h/x?sv=1&sig=abc", "https://h/x?sv=1&sig=***"),
        ('{"x": "https://h/x?access_token=abc"}', '{"x": "https://h/x?access_token=***"}'),
        ("https://h/x?apikey=a&api-key=b&AWSAccessKeyId=c", "https://h/x?apikey=***&api-key=***&AWSAccessKeyId=***"),
    ],
)
def test_secrets(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "a@b",
        "https://host/a@b.npy",
        "https://h/x.npy?key=1&part=2",
        "x.npy?token=1",
        "s3://bucket/x.npy, by me@home",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text
