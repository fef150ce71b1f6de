"""The records that asynct_tokenize and asynct_logits read and write: a 32-bit length and that many bytes, each."""

import struct
import subprocess


def exchange(command, records):
    """Runs a command over the records; one comes back for each."""
    data = b"".join(struct.pack("<I", len(r)) + r for r in records)
    result = subprocess.run([str(word) for word in command], input=data, capture_output=True)
    assert result.returncode == 0, result.stderr.decode()
    out, at = [], 0
    while at < len(result.stdout):
        (size,) = struct.unpack_from("<I", result.stdout, at)
        out.append(result.stdout[at + 4 : at + 4 + size])
        at += 4 + size
    assert len(out) == len(records)
    return out


def pack(ids):
    return struct.pack(f"<{len(ids)}i", *ids)


def unpack(record):
    return list(struct.unpack(f"<{len(record) // 4}i", record))
