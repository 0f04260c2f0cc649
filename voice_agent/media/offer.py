"""Checks an SDP offer before anything is built for it."""

from __future__ import annotations

import ipaddress

from aiortc.sdp import SessionDescription

MAX_LINES = 600
MAX_CANDIDATES = 200
MAX_CODECS = 40
"""A browser's offer has about 150 lines and 15 codecs. The parser's time grows with their product, on the loop."""


class OfferError(Exception):
    """An offer that cannot be answered. `status`: the HTTP status; the text says what was expected and got."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def check_offer(sdp: str) -> str:
    """The offer as it is handed to aiortc: without candidates that are host names.

    A browser hides its addresses behind `.local` names until it may use the microphone. Looking them up takes
    seconds where multicast is blocked; the caller's address becomes known from its connectivity checks anyway.

    Raises OfferError: 400 for text that is not SDP, 422 for an offer that asks for something else than a call
    (one Opus audio section in both directions or towards the server, and at most one data channel section).
    """
    lines = sdp.replace("\r\n", "\n").split("\n")
    if lines[0].strip() != "v=0":
        raise OfferError(400, f"expected an SDP offer that begins with 'v=0', got {lines[0][:40]!r}")
    if len(lines) > MAX_LINES:
        raise OfferError(400, f"expected at most {MAX_LINES} lines of SDP, got {len(lines)}")
    for what, start, most in (("candidates", "a=candidate:", MAX_CANDIDATES), ("codecs", "a=rtpmap:", MAX_CODECS)):
        count = sum(line.startswith(start) for line in lines)
        if count > most:
            raise OfferError(400, f"expected at most {most} {what}, got {count}")
    sdp = "\r\n".join(line for line in lines if not _is_named_candidate(line))
    try:
        offer = SessionDescription.parse(sdp)
    except Exception as error:
        # The parser reports malformed text by whatever its own code stumbles over.
        raise OfferError(400, f"expected an SDP offer, got text that does not parse ({_reason(error)})") from None
    kinds = [media.kind for media in offer.media]
    if kinds.count("audio") != 1 or kinds.count("application") > 1 or len(set(kinds) - {"audio", "application"}):
        raise OfferError(
            422, f"expected one audio section and at most one data channel section, got {kinds[:8] or 'none'}"
        )
    for media in offer.media:
        if not (media.ice and media.ice.usernameFragment and media.ice.password):
            raise OfferError(422, f"expected ice-ufrag and ice-pwd for the {media.kind} section, got none")
        if not (media.dtls and media.dtls.fingerprints):
            raise OfferError(422, f"expected a DTLS fingerprint for the {media.kind} section, got none")
        if media.kind == "application":
            continue
        codecs = [codec.mimeType for codec in media.rtp.codecs]
        if "audio/opus" not in [codec.lower() for codec in codecs]:
            raise OfferError(422, f"expected the codec audio/opus in the audio section, got {codecs[:8]}")
        if media.direction not in (None, "sendrecv", "sendonly", "recvonly"):
            raise OfferError(422, f"expected an audio section that sends or receives, got a={media.direction}")
    return sdp


def _is_named_candidate(line: str) -> bool:
    if not line.startswith("a=candidate:"):
        return False
    fields = line.split()
    if len(fields) < 6:
        return False
    try:
        ipaddress.ip_address(fields[4])
    except ValueError:
        return True
    return False


def _reason(error: Exception) -> str:
    return str(error)[:100] or type(error).__name__
