#!/usr/bin/env python3
"""Writes the prompts of the demonstration job: all 1,000 three-digit strings, 800 to train on and 200
held out. Usage: scripts/make_copy_dataset.py OUTPUT_DIRECTORY
"""
import json
import pathlib
import random
import sys


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    numbers = [f"{i:03d}" for i in range(1000)]
    random.Random(0).shuffle(numbers)
    for name, part in (("train", numbers[:800]), ("held_out", numbers[800:])):
        lines = [json.dumps({"prompt": f"{n}=", "answer": n}) for n in part]
        (directory / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
