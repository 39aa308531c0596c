"""Row 13: bytes that are no text, or hardly. Refused with file, line and byte, or read with U+FFFD in their place."""

from __future__ import annotations

import gzip
import random
import re

from elman.core.errors import DataError, ElmanError
from elman.text.corpus import learn, read_blocks
from elman.text.memory import texts
from elman.text.opening import MemorySource, Source
from elman.text.readers import Reader
from elman.text.settings import DataConfig, ReadingConfig
from elman.text.units.alphabet import bytes_of
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID
from reliability.row import Allowance, Count, Figure

RANDOM_TEXTS = 10_000
PLACE = re.compile(r"line \d+ of .*(byte \d+|NUL)|is UTF-|looks like UTF-|not text|not a whole")
PARTS = [
    b"the cat sat",
    b" ",
    b"\n",
    b"\r\n",
    b"\t",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xa9",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80",
]
PARTS += [
    b"\xe2\x80\xa8",
    b"\xc2\x85",
    b"\xef\xbb\xbf",
    b"<unk>",
    b"e\xcc\x81",
    b"\xe6\x9d\xb1",
    b"\x1b[2J",
    b"\xc0\x80",
    b"x" * 300,
]
NASTIES: dict[str, bytes] = {
    "nothing": b"",
    "a newline": b"\n",
    "newlines": b"\n" * 1000,
    "no newline at the end": b"a b c",
    "byte order mark": b"\xef\xbb\xbfa b\n",
    "byte order mark alone": b"\xef\xbb\xbf",
    "byte order mark inside": b"a \xef\xbb\xbf b\n",
    "two byte order marks": b"\xef\xbb\xbf\xef\xbb\xbfa\n",
    "UTF-16 little": "a b c\n".encode("utf-16-le"),
    "UTF-16 big": "a b c\n".encode("utf-16-be"),
    "UTF-16 marked": "a b c\n".encode("utf-16"),
    "UTF-32 little": "a b c\n".encode("utf-32-le"),
    "UTF-32 marked": "a b c\n".encode("utf-32"),
    "Latin-1": "naïve café\n".encode("latin-1"),
    "Windows-1252": "“quoted”\n".encode("cp1252"),
    "Shift-JIS": "東京\n".encode("shift-jis"),
    "GBK": "中文\n".encode("gbk"),
    "overlong slash": b"a \xc0\xaf b\n",
    "overlong NUL": b"a \xc0\x80 b\n",
    "overlong euro": b"a \xf0\x82\x82\xac b\n",
    "lone surrogate": b"a \xed\xa0\x80 b\n",
    "surrogate pair as six bytes": b"a \xed\xa0\xbd\xed\xb8\x80 b\n",
    "beyond U+10FFFF": b"a \xf4\x90\x80\x80 b\n",
    "cut in a character": b"a \xe6\x9d",
    "continuation alone": b"a \x80 b\n",
    "0xFE": b"a \xfe b\n",
    "0xFF": b"a \xff b\n",
    "NUL": b"a \0 b\n",
    "NULs only": b"\0" * 100,
    "carriage returns": b"a b\r\nc d\r\n",
    "carriage returns alone": b"a b\rc d\r",
    "U+2028": "a\u2028b\n".encode(),
    "U+2029": "a\u2029b\n".encode(),
    "U+0085": "a\u0085b\n".encode(),
    "vertical tab and form feed": b"a\vb\fc\n",
    "file and unit separators": b"a\x1cb\x1dc\x1ed\x1fe\n",
    "no-break space": "a\u00a0b\n".encode(),
    "ideographic space": "a\u3000b\n".encode(),
    "zero width": "a\u200bb\u200dc\ufeffd\n".encode(),
    "right to left": "a \u202e b \u2066 c\n".encode(),
    "combining without a letter": "\u0301 a\n".encode(),
    "a thousand combining": ("e" + "\u0301" * 1000 + "\n").encode(),
    "decomposed": "e\u0301 e\u0301\n".encode(),
    "emoji joined": "👩‍👩‍👧‍👦 🏳️‍🌈\n".encode(),
    "escape codes": b"a \x1b[31mred\x1b]0;title\x07 b\n",
    "backspaces": b"a\b\b\bb\n",
    "non-character": "a \ufffe \uffff b\n".encode(),
    "U+FFFD": "a \ufffd b\n".encode(),
    "private use": "a \ue000 b\n".encode(),
    "our own marks": "a <unk> ▁ \u2581 Ġ Ċ b\n".encode(),
    "a gzip cut short": gzip.compress(b"a b c\n" * 100)[:40],
    "a long word": b"x" * 100_000 + b"\n",
    "many spaces": b" " * 100_000 + b"a\n",
}


def malformed(allowance: Allowance) -> Figure:
    """Each text: strict reading works or says where; replacing never fails; bytes come back as they were."""
    rng = random.Random(allowance.seed)
    byte_tokenizer = _byte_tokenizer()
    count = Count()
    for name, text in NASTIES.items():
        path = allowance.folder / "nasty.txt"
        path.write_bytes(text)
        count.add(_look(path, name, text, byte_tokenizer))
    drawn = (_draw(rng) for _ in range(RANDOM_TEXTS * (10 if allowance.is_full else 1)))
    for number, text in enumerate(allowance.until_spent(drawn)):
        count.add(_look(MemorySource("random.txt", text), f"text {number}", text, byte_tokenizer))
    return count.figure(f" texts, {len(NASTIES)} of them known nasties", least=RANDOM_TEXTS + len(NASTIES))


def _draw(rng: random.Random) -> bytes:
    """Random bytes, or a text with a few of what texts should not have."""
    if rng.random() < 0.3:
        return rng.randbytes(rng.randint(0, 60))
    return b"".join(rng.choices(PARTS, k=rng.randint(1, 20)))


def _byte_tokenizer() -> Tokenizer:
    return learn([texts(["any"])], DataConfig(units="byte"), heldout=False).tokenizer


def _look(path: Source, name: str, text: bytes, byte_tokenizer: Tokenizer) -> str | None:
    try:
        lines = [line for block in Reader([path], ReadingConfig()).blocks() for line in block.split()]
        b"".join(lines).decode()
    except DataError as error:
        if error.exit_code != 65 or str(path) not in error.what or not PLACE.search(error.what):
            return f"{name}: {text[:40]!r}: no place: {error.what}"
    except Exception as error:
        return f"{name}: {text[:40]!r}: {type(error).__name__}: {error}"
    is_packed = text.startswith(b"\x1f\x8b")
    try:
        for block in Reader([path], ReadingConfig(errors="replace")).blocks():
            if "\0" in block.data.decode():
                return f"{name}: NUL is left after replacing"
    except ElmanError as error:
        if not is_packed:  # a compressed file that is cut short cannot be read, whatever is replaced in it
            return f"{name}: {text[:40]!r}: replacing fails: {error.what}"
    except Exception as error:
        return f"{name}: {text[:40]!r}: replacing fails: {type(error).__name__}: {error}"
    return None if is_packed else _round_trip(path, name, text, byte_tokenizer)


def _round_trip(path: Source, name: str, text: bytes, tokenizer: Tokenizer) -> str | None:
    """Whether the bytes come back; the file's end of line, mark and carriage returns are the reader's business."""
    ids = [
        number for block in read_blocks([path], tokenizer, DataConfig(units="byte")) for number in block.ids.tolist()
    ]
    ended = text if not text or text.endswith(b"\n") else text + b"\n"
    wanted = ended.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    found = b"".join(_byte(tokenizer, number) for number in ids)
    return None if found == wanted else f"{name}: {text[:40]!r}: came back as {found[:40]!r}"


def _byte(tokenizer: Tokenizer, number: int) -> bytes:
    return b"\n" if number == EOS_ID else bytes_of(tokenizer.tokens[number])
