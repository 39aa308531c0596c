"""The 256 bytes as 256 visible characters: GPT-2's byte-level alphabet."""

from __future__ import annotations

_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _VISIBLE]

BYTE_CHARACTERS = [""] * 256
for _byte in _VISIBLE:
    BYTE_CHARACTERS[_byte] = chr(_byte)
for _index, _byte in enumerate(_OTHERS):
    BYTE_CHARACTERS[_byte] = chr(256 + _index)
BYTE_OF = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}


def bytes_of(token: str) -> bytes:
    """The bytes a byte-level token stands for."""
    return bytes([BYTE_OF[character] for character in token])
