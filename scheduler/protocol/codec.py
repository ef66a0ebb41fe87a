"""Bytes to messages and back: msgpack, checked against the schema, with a size cap. Nothing else is ever decoded."""

from typing import Any, TypeVar

import msgspec

from scheduler.protocol.messages import FromAgent, FromShim, Message, Report, Target, ToAgent, ToMember, ToShim

MAX_BYTES = 8 * 1024 * 1024

_encoder = msgspec.msgpack.Encoder()
_T = TypeVar("_T")


class BadMessage(ValueError):
    """The bytes are no message of this protocol: too large, not msgpack, or not of the expected type."""


def encode(message: Message) -> bytes:
    """Raises BadMessage above MAX_BYTES: a peer would refuse it anyway."""
    data = _encoder.encode(message)
    if len(data) > MAX_BYTES:
        raise BadMessage(f"{type(message).__name__} has {len(data)} bytes; the limit is {MAX_BYTES}")
    return data


def _decoder(kind: Any) -> Any:
    decoder = msgspec.msgpack.Decoder(kind)

    def decode(data: bytes) -> Any:
        if len(data) > MAX_BYTES:
            raise BadMessage(f"{len(data)} bytes; the limit is {MAX_BYTES}")
        try:
            return decoder.decode(data)
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
            raise BadMessage(str(error)) from None

    return decode


decode_from_agent = _decoder(FromAgent)
decode_to_agent = _decoder(ToAgent)
decode_to_shim = _decoder(ToShim)
decode_from_shim = _decoder(FromShim)
decode_target = _decoder(Target)
decode_to_member = _decoder(ToMember)
decode_report = _decoder(Report)

_HEADER_BYTES = 4


def frame(message: Message) -> bytes:
    """A message for a byte stream: four bytes of length, big-endian, then the message."""
    data = encode(message)
    return len(data).to_bytes(_HEADER_BYTES, "big") + data


class Unframer:
    """Cuts a byte stream into messages. Feed what arrived; take what is complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Complete message bodies so far. Raises BadMessage when a header announces more than MAX_BYTES."""
        self._buffer += data
        bodies = []
        while len(self._buffer) >= _HEADER_BYTES:
            length = int.from_bytes(self._buffer[:_HEADER_BYTES], "big")
            if length > MAX_BYTES:
                raise BadMessage(f"a frame of {length} bytes; the limit is {MAX_BYTES}")
            if len(self._buffer) < _HEADER_BYTES + length:
                break
            bodies.append(bytes(self._buffer[_HEADER_BYTES : _HEADER_BYTES + length]))
            del self._buffer[: _HEADER_BYTES + length]
        return bodies
