#!/usr/bin/env python3
"""Writes the prompts of the digit-completion job: "a,b:9,nS" asks for the next n terms of the arithmetic
sequence that starts a, b, modulo 9, separated by commas. 800 prompts to train on, 200 held out.
Usage: scripts/make_digit_dataset.py OUTPUT_DIRECTORY
"""
import json
import pathlib
import random
import sys

MODULUS = 9


def answer(a, b, n):
    step = (b - a) % MODULUS
    return ",".join(str((b + step * (i + 1)) % MODULUS) for i in range(n))


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    questions = [(a, b, n) for a in range(10) for b in range(10) for n in range(10)]
    random.Random(0).shuffle(questions)
    for name, part in (("train", questions[:800]), ("held_out", questions[800:])):
        lines = [json.dumps({"prompt": f"{a},{b}:{MODULUS},{n}S", "answer": answer(a, b, n)})
                 for a, b, n in part]
        (directory / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
