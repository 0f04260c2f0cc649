"""https with a certificate of this machine's own: whom it names, how long it is kept, and that the server speaks it."""

from __future__ import annotations

import datetime
import re
import ssl
import stat
from pathlib import Path

import httpx
import pytest

from tests.media_fakes import running_server
from voice_agent.server import ServerConfig
from voice_agent.tls import VALID_DAYS, ensure_certificate, qr_code


def test_a_certificate_is_kept_while_it_is_good(tmp_path: Path) -> None:
    first = ensure_certificate(tmp_path / "tls", ["192.0.2.7"])
    assert stat.S_IMODE(first.key.stat().st_mode) == 0o600
    assert re.fullmatch(r"([0-9A-F]{2}:){31}[0-9A-F]{2}", first.fingerprint)
    assert ensure_certificate(tmp_path / "tls", ["192.0.2.7"]) == first
    assert ensure_certificate(tmp_path / "tls", []) == first, "it names more than is asked for"
    assert ensure_certificate(tmp_path / "tls", ["192.0.2.8"]).fingerprint != first.fingerprint


def test_a_certificate_that_is_about_to_end_is_made_anew(tmp_path: Path) -> None:
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    first = ensure_certificate(tmp_path, [], now)
    assert ensure_certificate(tmp_path, [], now + datetime.timedelta(days=VALID_DAYS - 8)) == first
    assert ensure_certificate(tmp_path, [], now + datetime.timedelta(days=VALID_DAYS - 6)) != first


def test_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected IP addresses .* got shop\.example"):
        ensure_certificate(tmp_path, ["shop.example"])


def test_half_a_certificate_is_refused() -> None:
    with pytest.raises(ValueError, match="got only one of them"):
        ServerConfig(certificate="certificate.pem")


def test_the_qr_code_fits_a_terminal() -> None:
    lines = qr_code("https://192.0.2.7:8080").splitlines()
    assert 10 < len(lines) < 24
    assert max(map(len, lines)) < 80 + len("\033[97;40m\033[0m")


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_server_speaks_https(tmp_path: Path) -> None:
    made = ensure_certificate(tmp_path, [])
    trusted = ssl.create_default_context(cafile=str(made.certificate))
    async with (
        running_server(certificate=str(made.certificate), key=str(made.key)) as server,
        httpx.AsyncClient(verify=trusted, trust_env=False) as client,
    ):
        response = await client.get(server.url.replace("http://", "https://") + "/healthz")
    assert response.json() == {"status": "ok"}
