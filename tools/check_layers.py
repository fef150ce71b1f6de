#!/usr/bin/env python3
"""Checks that each layer of src/asynct includes only itself and the layers named before it."""

import pathlib
import re
import sys

LAYERS = ["base", "tensor", "ops", "kv", "text", "model", "engine", "eval", "serve", "cli", "python"]
INCLUDE = re.compile(r'^\s*#\s*include\s+"asynct/([^/"]+)/')


def violations(root):
    for path in sorted((root / "src" / "asynct").rglob("*")):
        if path.suffix not in {".h", ".cc", ".cu", ".cuh"}:
            continue
        layer = path.relative_to(root / "src" / "asynct").parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            found = INCLUDE.match(line)
            if found is None:
                continue
            if found[1] not in LAYERS or layer not in LAYERS:
                yield f"{path}:{number}: unknown layer in {line.strip()}"
            elif LAYERS.index(found[1]) > LAYERS.index(layer):
                yield f"{path}:{number}: {layer} may not include {found[1]}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    if root.is_file():
        root = root.parent.parent
    found = list(violations(root))
    print("\n".join(found) if found else "layers: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
