"""Everything that is replaced inside aiortc 1.16 and aioice, in one place, each with its reason.

1. The jitter buffer of audio receivers (`tap`). Theirs always holds 4 packets, and after one lost packet it gives
   nothing for 280 ms and stays 280 ms late for the rest of the call (aiortc#543). Packets are handed to ours as
   they arrive, and nothing reaches their decoder thread.
2. The SCTP fragment size. Theirs just fits a path MTU of 1280 (VPNs); with the headers of a relay on top it does
   not, and data channels stall.
3. The host addresses that ICE offers. aioice leaves out loopback, so that two peers on one machine depend on its
   network card; here the caller names the addresses.
4. The time that candidate gathering may take. A STUN server that cannot answer holds a call back for 5 s, and nobody
   is told that a STUN or TURN server has given nothing.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import aioice.ice
import aiortc.rtcsctptransport
from aiortc import RTCRtpReceiver
from aiortc.rtp import RtpPacket

log = logging.getLogger(__name__)

SCTP_USER_DATA_BYTES = 1100
GATHERING_LIMIT_S = 1.0

_hosts: ContextVar[tuple[str, ...]] = ContextVar("ice_host_addresses", default=())
_original_host_addresses = aioice.ice.get_host_addresses
_original_gather = aioice.ice.Connection.get_component_candidates


class _Tap:
    """Stands where the receiver keeps its jitter buffer: every packet goes out at once, none comes back."""

    def __init__(self, on_packet: Callable[[RtpPacket], None]) -> None:
        self._on_packet = on_packet

    def add(self, packet: RtpPacket) -> tuple[bool, None]:
        self._on_packet(packet)
        return False, None


def tap(receiver: RTCRtpReceiver, on_packet: Callable[[RtpPacket], None]) -> None:
    """Hand `receiver`'s RTP packets to `on_packet`, on the event loop, in the order of their arrival."""
    if not hasattr(receiver, "_RTCRtpReceiver__jitter_buffer"):
        raise RuntimeError("expected aiortc 1.16, whose RTCRtpReceiver has a __jitter_buffer; got another release")
    setattr(receiver, "_RTCRtpReceiver__jitter_buffer", _Tap(on_packet))  # noqa: B010  (a mangled name)


def packets_received(receiver: RTCRtpReceiver) -> int:
    """Packets of any kind (RTP, RTCP, data) that the receiver's connection got so far."""
    return sum(report.packetsReceived for report in receiver.transport._get_stats().values())


@contextlib.contextmanager
def host_addresses(addresses: tuple[str, ...]) -> Iterator[None]:
    """While open, ICE gathers host candidates from these addresses alone; empty: from all but loopback."""
    token = _hosts.set(addresses)
    try:
        yield
    finally:
        _hosts.reset(token)


def lan_addresses() -> list[str]:
    """The IPv4 addresses of this machine but loopback."""
    return _original_host_addresses(use_ipv4=True, use_ipv6=False)


def _host_addresses(use_ipv4: bool, use_ipv6: bool) -> list[str]:
    return list(_hosts.get()) or _original_host_addresses(use_ipv4=use_ipv4, use_ipv6=use_ipv6)


@functools.wraps(_original_gather)
async def _gather(self: aioice.ice.Connection, component: int, addresses: list[str]) -> list[aioice.Candidate]:
    found = await _original_gather(self, component, addresses, timeout=GATHERING_LIMIT_S)  # type: ignore[arg-type]
    kinds = {candidate.type for candidate in found}
    if self.stun_server is not None and "srflx" not in kinds:
        log.warning("the STUN server %s:%d gave no address: check that it runs", *self.stun_server)
    if self.turn_server is not None and "relay" not in kinds:
        text = "the TURN server %s:%d gave no address: check that it runs, and its username and credential"
        log.warning(text, *self.turn_server)
    return found


def install() -> None:
    """Put the replacements in place; calling it again changes nothing."""
    aiortc.rtcsctptransport.USERDATA_MAX_LENGTH = SCTP_USER_DATA_BYTES
    aioice.ice.get_host_addresses = _host_addresses
    aioice.ice.Connection.get_component_candidates = _gather  # type: ignore[method-assign,assignment]
