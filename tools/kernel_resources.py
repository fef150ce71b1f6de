#!/usr/bin/env python3
"""Registers, spills and static shared memory of the CUDA kernels of a build, from what ptxas said when it compiled
them (tools/compile_cuda.sh): tools/kernel_resources.py [BUILD [WORD]], of kernels whose names hold the word."""

import dataclasses
import pathlib
import re
import subprocess
import sys

KERNEL = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
FUNCTION = re.compile(r"Function properties for (\w+)")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
# Products of a warpgroup that wait where the source did not ask them to: made serial, waits put in between.
LOSS = re.compile(r"\(C75\d\d\).*")


@dataclasses.dataclass
class Kernel:
    name: str
    architecture: str = ""
    registers: int = 0
    spilled: int = 0  # bytes stored and loaded
    shared: int = 0  # bytes, static only


def parse(text):
    """The kernels of one object and the lines that tell of lost speed."""
    kernels = []
    losses = []
    own = True  # the function that ptxas speaks of is the kernel, not one it calls
    for line in text.splitlines():
        if found := LOSS.search(line):
            losses.append(found[0])
        elif found := KERNEL.search(line):
            kernels.append(Kernel(found[1], found[2]))
        elif found := FUNCTION.search(line):
            own = bool(kernels) and found[1] == kernels[-1].name
        elif kernels and own and (found := SPILLS.search(line)):
            kernels[-1].spilled = int(found[2]) + int(found[3])
        elif kernels and own and (found := REGISTERS.search(line)):
            kernels[-1].registers = int(found[1])
            if found := SHARED.search(line):
                kernels[-1].shared = int(found[1])
    return kernels, losses


def demangled(text):
    return subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True).stdout


def short(name):
    """Without return type, arguments and our namespaces."""
    name = name.replace("asynct::cuda::", "").replace("(anonymous namespace)::", "").replace("> >", ">>")
    return re.sub(r"\([^()]*\)$", "", name.removeprefix("void "))


def objects(build):
    """CUDA objects of a build folder."""
    return sorted(pathlib.Path(build).rglob("*.cu.o"))


def read(build):
    """Kernels by name (with the architecture where it is not Hopper), lines of lost speed, objects of which nothing was kept."""
    kernels = []
    losses = []
    silent = []
    for path in objects(build):
        kept = path.with_name(path.name + ".ptxas")
        if not kept.exists():
            silent.append(path)
            continue
        found, lost = parse(kept.read_text())
        kernels += found
        losses += [short(demangled(line).strip()) for line in lost]
    names = demangled("\n".join(kernel.name for kernel in kernels)).splitlines()
    for kernel, name in zip(kernels, names):
        kernel.name = short(name) + ("" if kernel.architecture.startswith("sm_90") else f" for {kernel.architecture}")
    return {kernel.name: kernel for kernel in sorted(kernels, key=lambda kernel: kernel.name)}, losses, silent


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1] / "build"
    word = sys.argv[2] if len(sys.argv) > 2 else ""
    kernels, losses, silent = read(build)
    print("registers  spilled  shared  kernel")
    for name, kernel in kernels.items():
        if word in name:
            print(f"{kernel.registers:9}  {kernel.spilled:7}  {kernel.shared:6}  {name}")
    for line in losses:
        print(line)
    for path in silent:
        print(f"{path}: nothing kept; build it again")
    return 1 if silent or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
