#!/usr/bin/env python3
"""Writes src/hf/nfc_table.inc: the tables of Unicode normalisation form C, from Python's unicodedata.

The reference tokenizers normalise with the tables of Unicode 9. What later versions (up to 14) added is
left out here, so that token ids agree.
"""
import pathlib
import sys
import unicodedata

TARGET = pathlib.Path(__file__).resolve().parent.parent / "src/hf/nfc_table.inc"

ADDED_SINCE_UNICODE_9 = {code for first, last in [
    (0x7FD, 0x7FD), (0x898, 0x89F), (0x8CA, 0x8D3), (0x9FE, 0x9FE), (0xC3C, 0xC3C), (0xD3B, 0xD3C), (0xEBA, 0xEBA),
    (0x1715, 0x1715), (0x1ABF, 0x1ACE), (0x1DF6, 0x1DFA), (0xA82C, 0xA82C), (0x10D24, 0x10D27), (0x10EAB, 0x10EAC),
    (0x10F46, 0x10F50), (0x10F82, 0x10F85), (0x11070, 0x11070), (0x1133B, 0x1133B), (0x1145E, 0x1145E),
    (0x11839, 0x1183A), (0x11938, 0x11938), (0x1193D, 0x1193E), (0x11943, 0x11943), (0x119E0, 0x119E0),
    (0x11A34, 0x11A34), (0x11A47, 0x11A47), (0x11A99, 0x11A99), (0x11D42, 0x11D45), (0x11D97, 0x11D97),
    (0x16FF0, 0x16FF1), (0x1E130, 0x1E136), (0x1E2AE, 0x1E2AE), (0x1E2EC, 0x1E2EF),
] for code in range(first, last + 1)}
CODES = [code for code in range(sys.maxunicode + 1) if code not in ADDED_SINCE_UNICODE_9]


def canonical_decompositions():
    for code in CODES:
        fields = unicodedata.decomposition(chr(code)).split()
        if fields and not fields[0].startswith("<"):
            parts = [int(field, 16) for field in fields]
            yield code, parts[0], parts[1] if len(parts) > 1 else 0


def combining_ranges():
    ranges = []
    for code in CODES:
        combining = unicodedata.combining(chr(code))
        if combining == 0:
            continue
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == combining:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, combining])
    return ranges


def array(type_name, name, rows, per_line):
    cells = ["{" + ", ".join(f"0x{v:X}" for v in row) + "}" for row in rows]
    lines = [", ".join(cells[i : i + per_line]) for i in range(0, len(cells), per_line)]
    return f"constexpr {type_name} {name}[] = {{\n    " + ",\n    ".join(lines) + "};\n"


def main():
    assert unicodedata.unidata_version == "14.0.0", "complete ADDED_SINCE_UNICODE_9 for this Python"
    decompositions = list(canonical_decompositions())
    # The composition exclusions are the pairs that form C does not put together.
    compositions = sorted(
        (first, second, code)
        for code, first, second in decompositions
        if second and unicodedata.normalize("NFC", chr(first) + chr(second)) == chr(code)
    )
    TARGET.write_text(
        "// Unicode 9, written by scripts/make_nfc_table.py; do not edit.\n"
        + array("Decomposition", "kDecompositions", decompositions, 4)
        + array("CombiningRange", "kCombiningRanges", combining_ranges(), 4)
        + array("Composition", "kCompositions", compositions, 4)
    )


main()
