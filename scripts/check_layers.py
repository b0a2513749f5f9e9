#!/usr/bin/env python3
"""Checks that every #include follows docs/layers.txt, and that no public header shows a third party.

Usage: scripts/check_layers.py [repository root]. Exit 1 and one line per fault.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def read_layers(path):
    allowed, owners = {}, []
    for line in path.read_text().splitlines():
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        if line.startswith("@"):
            prefix, places = line[1:].split(":", 1)
            owners.append((prefix.strip(), places.split()))
        else:
            module, modules = line.split(":", 1)
            allowed[module.strip()] = set(modules.split())
    return allowed, owners


def check_file(root, path, allowed, owners):
    relative = path.relative_to(root).as_posix()
    match = re.match(r"(?:include/rpeg|src)/([^/]+)/", relative)
    module = match.group(1) if match else None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        header = found.group(2)
        where = f"{relative}:{number}"
        for prefix, places in owners:
            if header.startswith(prefix) and not any(relative.startswith(p + "/") for p in places):
                yield f"{where}: {header} may be included below {' '.join(places)} only"
        if not module:
            continue
        if module not in allowed:
            yield f"{where}: module {module} is not in docs/layers.txt"
            return
        target = re.match(r"(?:rpeg/)?([a-z_]+)/", header)
        if found.group(1) == '"' and target and target.group(1) in allowed:
            used = target.group(1)
            if used != module and used not in allowed[module]:
                yield f"{where}: {module} may not include {used} (docs/layers.txt)"
            if used != module and not header.startswith("rpeg/"):
                yield f"{where}: {header} is private to {used}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    allowed, owners = read_layers(root / "docs/layers.txt")
    faults, files = [], 0
    for folder in ("include", "src", "apps", "tests"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".h", ".cpp", ".cu", ".cuh"}:
                files += 1
                faults += check_file(root, path, allowed, owners)
    if files == 0:
        faults.append(f"no source file found below {root}")
    print("\n".join(faults) if faults else f"{files} files keep to docs/layers.txt")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
