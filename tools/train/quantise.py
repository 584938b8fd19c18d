#!/usr/bin/env python3
"""Writes a head or a small model with its matrices in int8, half of bf16's size, in the layout of
compressed-tensors: a scale for each output. Needs no library.

    quantise.py FROM TO       directories with config.json and model.safetensors

A scale is a power of two, so that bf16 holds every value exactly. Embeddings, norms and whatever is not a
bf16 matrix stay as they are."""

import argparse
import json
import math
import shutil
import struct
import sys
from array import array
from pathlib import Path

LARGEST = 127


def read_tensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    body = memoryview(data)[8 + size:]
    return {name: (entry["dtype"], entry["shape"], bytes(body[slice(*entry["data_offsets"])]))
            for name, entry in header.items()}


def write_tensors(path, tensors):
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def bf16_values(data):
    words = array("H", data)
    if sys.byteorder == "big":
        words.byteswap()
    return struct.unpack(f"<{len(words)}f", b"".join(struct.pack("<HH", 0, word) for word in words))


def scale_of(row):
    """The power of two whose codes lose least: a large one rounds, a small one cuts the extremes."""
    most = max(map(abs, row))
    if most == 0:
        return 1.0
    widest = 2.0 ** math.ceil(math.log2(most / LARGEST))
    return min((widest, widest / 2), key=lambda scale: error_of(row, scale))


def codes_of(row, scale):
    return [max(-LARGEST, min(LARGEST, round(value / scale))) for value in row]


def error_of(row, scale):
    return sum((value - code * scale) ** 2 for value, code in zip(row, codes_of(row, scale)))


def quantise(shape, data):
    """-> (codes, scales) as int8 and f32 bytes."""
    values = bf16_values(data)
    rows = [values[first:first + shape[1]] for first in range(0, len(values), shape[1])]
    scales = [scale_of(row) for row in rows]
    codes = array("b")
    for row, scale in zip(rows, scales):
        codes.extend(codes_of(row, scale))
    return codes.tobytes(), struct.pack(f"<{len(scales)}f", *scales)


def is_quantised(name, dtype, shape):
    return dtype == "BF16" and len(shape) == 2 and "embed" not in name


QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "config_groups": {"group_0": {
        "targets": ["Linear"],
        "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
    }},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", metavar="FROM", type=Path)
    parser.add_argument("to", metavar="TO", type=Path)
    options = parser.parse_args()
    for name in ("config.json", "model.safetensors"):
        if not (options.source / name).is_file():
            parser.error(f"{options.source / name} is not there")
    if options.to.exists() and options.to.samefile(options.source):
        parser.error("FROM and TO are the same")
    tensors, count = {}, 0
    for name, (dtype, shape, data) in read_tensors(options.source / "model.safetensors").items():
        if not is_quantised(name, dtype, shape):
            tensors[name] = (dtype, shape, data)
            continue
        codes, scales = quantise(shape, data)
        tensors[name] = ("I8", shape, codes)
        tensors[name + "_scale"] = ("F32", [shape[0], 1], scales)
        count += 1
    if count == 0:
        parser.error(f"{options.source / 'model.safetensors'} has no bf16 matrix")
    config = json.loads((options.source / "config.json").read_text())
    config["quantization_config"] = QUANTIZATION
    options.to.mkdir(parents=True, exist_ok=True)
    for file in options.source.iterdir():
        if file.is_file() and file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, options.to)
    aligned = dict(sorted(tensors.items(), key=lambda item: item[1][0] == "I8"))  # wide types first
    write_tensors(options.to / "model.safetensors", aligned)
    (options.to / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    print(f"{count} matrices in int8, {(options.to / 'model.safetensors').stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
