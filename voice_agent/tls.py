"""HTTPS for a phone in the same network: browsers open the microphone on https or localhost alone."""

from __future__ import annotations

import datetime
import io
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import segno
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Browsers refuse certificates of more than 398 days.
VALID_DAYS = 365
RENEW_DAYS = 7


@dataclass(frozen=True)
class Certificate:
    """PEM files of a certificate and its key. `fingerprint`: SHA-256 of the certificate, as browsers show it."""

    certificate: Path
    key: Path
    fingerprint: str


def default_folder() -> Path:
    """Where certificates are kept: `$XDG_STATE_HOME/voice-agent`, by default below `~/.local/state`."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "voice-agent"


def ensure_certificate(folder: Path, addresses: Sequence[str], now: datetime.datetime | None = None) -> Certificate:
    """A self-signed certificate for localhost and these IP addresses.

    The one in `folder` is used again while it names all of them and is valid for a week or more, so that a browser
    which accepted it once does not ask again. Raises ValueError for an address that is none.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    try:
        wanted = {ipaddress.ip_address("127.0.0.1"), *map(ipaddress.ip_address, addresses)}
    except ValueError:
        told = ", ".join(addresses)
        raise ValueError(f"expected IP addresses to make a certificate for, got {told}; a name needs its own") from None
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    if certificate.exists() and key.exists():
        known = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = known.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        covered = wanted <= set(names.get_values_for_type(x509.IPAddress))
        if covered and known.not_valid_after_utc - now > datetime.timedelta(days=RENEW_DAYS):
            return Certificate(certificate, key, _fingerprint(known))
    made, secret = _make(sorted(wanted, key=str), now)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    pem = secret.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    key.unlink(missing_ok=True)
    with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return Certificate(certificate, key, _fingerprint(made))


def _make(
    addresses: Sequence[ipaddress.IPv4Address | ipaddress.IPv6Address], now: datetime.datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "voice-agent on this machine")])
    names = [x509.DNSName("localhost"), *map(x509.IPAddress, addresses)]
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    return builder.sign(secret, hashes.SHA256()), secret


def _fingerprint(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def qr_code(text: str) -> str:
    """The text as a QR code of half blocks, black on white whatever the terminal's own colours are."""
    drawing = io.StringIO()
    segno.make(text, error="m").terminal(drawing, compact=True)
    return "\n".join(f"\033[97;40m{line}\033[0m" for line in drawing.getvalue().splitlines())
