#!/usr/bin/env python3
"""Packs the peers that peers.py measures but no package manager of the GPU machine has: FlashAttention-3 and
cuDNN's Python front end, about 6 MB in one archive.

    python3 bench/kernels/pack_fa3.py peers.tar.xz [--download DIR]

FlashAttention-3's wheel holds 300 MB of device code for head sizes, types and options that are never timed here.
The library carries one fat binary a translation unit; each holds one ELF image an architecture. Images that are
not wanted are overwritten by an empty kernel's image and zeros: offsets stay, kernels that are loaded stay as
they were built, and xz makes little of the zeros. The result is a third party's binary: it does not belong in
the repository. Needs nvcc, c++filt, xz, and pip for the two wheels.
"""

import argparse
import dataclasses
import io
import pathlib
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile

FA3 = "tokenspeed-fa3==3.0.0.post20260810"
CUDNN = "nvidia-cudnn-frontend==1.18.0"
FAT_MAGIC = 0xBA55ED50
# The forward kernel's main loop: tile rows, keys and head size, value head size, element, then its switches.
MAINLOOP = re.compile(
    r"CollectiveMainloopFwdSm90<\d+, cute::tuple<[^<>]*(?:<[^<>]*>[^<>]*)*>, "
    r"cute::tuple<cute::C<\d+>, cute::C<\d+>, cute::C<(?P<dim>\d+)> ?>, (?P<value_dim>\d+), (?P<element>\S+), float, "
    r"cutlass::arch::Sm90(?P<switches>(?:, (?:true|false))+)"
)
SWITCHES = ["causal", "local", "softcap", "varlen", "paged", "append", "qv", "rs", "overlap", "pack", "split", "colmajor"]


@dataclasses.dataclass
class Image:
    """Device code of one translation unit and architecture: bytes [begin, begin + size) of the file."""

    architecture: int
    begin: int
    size: int


def section(data: bytes, wanted: str) -> tuple[int, int]:
    """Offset and size of an ELF section."""
    table, = struct.unpack_from("<Q", data, 40)
    entry, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQ", data, table + entry * i) for i in range(count)]
    strings = headers[names][4]
    for name, _, _, _, offset, size in headers:
        begin = strings + name
        if data[begin : data.index(b"\0", begin)].decode() == wanted:
            return offset, size
    raise SystemExit(f"no section {wanted}")


def images(data: bytes) -> list[Image]:
    at, size = section(data, ".nv_fatbin")
    end = at + size
    found = []
    while at + 16 <= end:
        magic, _, header, length = struct.unpack_from("<IHHQ", data, at)
        if magic != FAT_MAGIC:  # padding between fat binaries
            at += 8
            continue
        inner, at = at + header, at + header + length
        while inner < at:
            _, _, entry_header, entry_size = struct.unpack_from("<HHIQ", data, inner)
            architecture, = struct.unpack_from("<I", data, inner + 28)
            found.append(Image(architecture, inner + entry_header, entry_size))
            inner += entry_header + entry_size
    return found


def kernel_names(image: bytes) -> list[str]:
    mangled = sorted({m[1].decode() for m in re.finditer(rb"\0\.text\.(_Z[\w$.]+)", image)})
    done = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def is_wanted(names: list[str]) -> bool:
    """bf16 without softcap: head size 128 in all its forms, 64 for contiguous prefill; and what is no forward or backward
    kernel (the scheduler's, the sum of splits)."""
    text = "\n".join(names)
    if "FlashAttnBwd" in text or "FlashAttnFwdSm80" in text:
        return False
    if "FlashAttnFwdSm90" not in text:
        return True
    for name in names:
        found = MAINLOOP.search(name)
        if found is None or found["element"] != "cutlass::bfloat16_t" or found["dim"] != found["value_dim"]:
            continue
        on = dict(zip(SWITCHES, (word == "true" for word in found["switches"].split(", ")[1:])))
        if on["softcap"]:
            continue
        if found["dim"] == "128" or (found["dim"] == "64" and not on["paged"] and not on["split"]):
            return True
    return False


def empty_image(architecture: int, folder: pathlib.Path) -> bytes:
    source, image = folder / "empty.cu", folder / f"empty{architecture}.cubin"
    source.write_text('extern "C" __global__ void empty() {}\n')
    name = "sm_90a" if architecture == 90 else f"sm_{architecture}"
    subprocess.run(["nvcc", "-cubin", f"-arch={name}", str(source), "-o", str(image)], check=True)
    return image.read_bytes()


def thin(data: bytes) -> bytes:
    out, kept, dropped, empty = bytearray(data), 0, 0, {}
    with tempfile.TemporaryDirectory() as folder:
        for image in images(data):
            content = data[image.begin : image.begin + image.size]
            if content[:4] != b"\x7fELF":
                raise SystemExit("compressed device code: expected plain images, as in the wheel's version " + FA3)
            if image.architecture == 90 and is_wanted(kernel_names(content)):
                kept += image.size
                continue
            if image.architecture not in empty:
                empty[image.architecture] = empty_image(image.architecture, pathlib.Path(folder))
            stub = empty[image.architecture]
            out[image.begin : image.begin + image.size] = stub + bytes(image.size - len(stub))
            dropped += image.size
    print(f"kept {kept / 1e6:.0f} MB of device code, dropped {dropped / 1e6:.0f}")
    return bytes(out)


def download(requirement: str, folder: pathlib.Path) -> pathlib.Path:
    """The wheel for Python 3.12, whatever runs here."""
    name = requirement.partition("==")[0].replace("-", "_")
    found = sorted(folder.glob(name + "-*.whl"))
    if not found:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--python-version", "3.12",
                   "--implementation", "cp", "--abi", "abi3", "--abi", "cp312", "--platform", "manylinux_2_28_x86_64",
                   "-d", str(folder), requirement]
        subprocess.run(command, check=True)
        found = sorted(folder.glob(name + "-*.whl"))
    return found[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("--download", type=pathlib.Path, default=pathlib.Path("build/wheels"), help="where wheels are kept")
    arguments = parser.parse_args()
    arguments.download.mkdir(parents=True, exist_ok=True)
    with tarfile.open(arguments.archive, "w:xz", preset=9) as archive:

        def add(name: str, content: bytes) -> None:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))

        with zipfile.ZipFile(download(FA3, arguments.download)) as wheel:
            add("fa3.so", thin(wheel.read("flash_attn_3/_C.abi3.so")))
        with zipfile.ZipFile(download(CUDNN, arguments.download)) as wheel:
            # The package's top level and its graphs; its kernels in other languages are not used here.
            for name in wheel.namelist():
                parts = pathlib.PurePath(name).parts
                if parts[0] == "cudnn" and len(parts) == 2 and not name.endswith("/"):
                    add(name, wheel.read(name))
    print(f"{arguments.archive}: {arguments.archive.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
