"""Messages between the server and a stage process: pickles over a Unix socket, big arrays in shared memory.

A hidden state or a frame's codes are a few kilobytes and travel inside the pickle. Arrays from `SHARED_FROM` bytes on
(the states of a prompt, a caller's recording) are written once into a file in memory, memfd_create(2), and its
descriptor goes with the message; the receiver maps it and copies nothing. That file has no name, so nothing is left
behind whoever dies first. Arrays are kept out of the pickle as PEP 574 describes. Linux alone.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import socket
import struct
import threading
from typing import Any

import torch

SHARED_FROM = 64 * 1024
ALIGNMENT = 64  # of an array inside the shared file
HEADER = struct.Struct("!II")  # bytes of the pickle, number of shared arrays
SIZE = struct.Struct("!Q")


class Channel:
    """One end of a connected pair. `send` may be called from any thread, `receive` from one.

    Closing either end, or the death of its process, ends `receive` at the other with EOFError.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()

    def send(self, message: Any) -> None:
        """Blocks while the other end does not read. Raises OSError once it is closed."""
        shared: list[memoryview] = []

        def inside(buffer: pickle.PickleBuffer) -> bool:
            view = buffer.raw()
            if view.nbytes >= SHARED_FROM:
                shared.append(view)
            return view.nbytes < SHARED_FROM

        pickled = io.BytesIO()
        _Pickler(pickled, protocol=5, buffer_callback=inside).dump(message)
        header = HEADER.pack(pickled.tell(), len(shared))
        sizes = b"".join(SIZE.pack(view.nbytes) for view in shared)
        with self._sending:
            if shared:
                self._send_shared(header, shared)
            else:
                self._socket.sendall(header)
            self._socket.sendall(sizes)
            self._socket.sendall(pickled.getbuffer())

    def receive(self) -> Any:
        """The next message. Raises EOFError at the end, TimeoutError after the silence that `expect_within` set."""
        try:
            return self._receive()
        except BlockingIOError:
            raise TimeoutError("expected a message in time, got none") from None
        except ConnectionError:
            raise EOFError from None

    def expect_within(self, seconds: float) -> None:
        """From now on `receive` fails when nothing comes for so long."""
        whole = int(seconds)
        limit = struct.pack("ll", whole, int(1e6 * (seconds - whole)))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)

    def hang_up(self) -> None:
        """End both directions; whoever sends or receives at this moment is woken."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other end was first

    def close(self) -> None:
        self._socket.close()

    def _send_shared(self, header: bytes, views: list[memoryview]) -> None:
        with open(os.memfd_create("voice-agent-arrays"), "wb", buffering=0) as file:
            for view in views:
                file.seek(_aligned(file.tell()))
                written = 0
                while written < view.nbytes:
                    written += file.write(view[written:])
            file.truncate(_aligned(file.tell()))
            sent = socket.send_fds(self._socket, [header], [file.fileno()])
        self._socket.sendall(header[sent:])

    def _receive(self) -> Any:
        header, descriptors, _, _ = socket.recv_fds(self._socket, HEADER.size, 1, socket.MSG_CMSG_CLOEXEC)
        if not header:
            raise EOFError
        header += self._read(HEADER.size - len(header))
        length, count = HEADER.unpack(header)
        sizes = [size for (size,) in SIZE.iter_unpack(self._read(SIZE.size * count))]
        buffers = _mapped(descriptors[0], sizes) if descriptors else []
        return pickle.loads(self._read(length), buffers=buffers)

    def _read(self, length: int) -> bytearray:
        data = bytearray(length)
        view, got = memoryview(data), 0
        while got < length:
            count = self._socket.recv_into(view[got:])
            if not count:
                raise EOFError
            got += count
        return data


def channel_pair() -> tuple[Channel, socket.socket]:
    """This process's end, and the socket to give to the other process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return Channel(ours), theirs


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _mapped(descriptor: int, sizes: list[int]) -> list[memoryview]:
    """The arrays of a shared file, which stays mapped while one of them is in use."""
    try:
        view, start, arrays = memoryview(mmap.mmap(descriptor, 0)), 0, []
    finally:
        os.close(descriptor)
    for size in sizes:
        arrays.append(view[start : start + size])
        start = _aligned(start + size)
    return arrays


class _Pickler(pickle.Pickler):
    """Tensors travel as plain memory, from whatever device to the CPU."""

    def reducer_override(self, thing: Any) -> Any:
        if not isinstance(thing, torch.Tensor):
            return NotImplemented
        flat = thing.detach().cpu().contiguous().view(-1).view(torch.uint8)
        return _tensor, (pickle.PickleBuffer(flat.numpy().data), thing.dtype, tuple(thing.shape))


def _tensor(memory: bytearray | memoryview, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.frombuffer(memory, dtype=dtype).view(shape) if len(memory) else torch.empty(shape, dtype=dtype)
