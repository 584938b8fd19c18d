"""Writes config.pyi: the type hints of the configuration, from the engine's table of settings.

Usage: make_config_stub.py OUTPUT, with the built package on PYTHONPATH.
"""

import sys

from talon import _talon

HEAD = '''# Made by make_config_stub.py from the engine's table of settings.
from typing import Any, Mapping, Self

class _Settings:
    def to_dict(self) -> dict[str, Any]: ...
    def to_yaml(self) -> str: ...
    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self: ...
    @classmethod
    def from_yaml(cls, text: str) -> Self: ...
    def replace(self, **keys: Any) -> Self: ...
'''

WIDER = {  # forms that only Python has
    "bad_words": "str | list[str]",
    "logit_bias": "str | Mapping[int, float]",
    "seed": "int | None",
}
GRAMMARS = {
    "json_schema": "Mapping[str, Any] | bool | str | None",
    "regex": "str | None",
    "grammar": "str | None",
    "choice": "list[str] | None",
}
EXTRA = {"EngineConfig": ("speculative_config", "SpeculativeConfig")}


def stub_of(name: str, set_name: str) -> str:
    """The class with its keys as attributes and as keywords of __init__."""
    attributes, keywords = [], []
    for row in _talon.settings(set_name):
        key, kind = row["key"], row["type"]
        attributes.append(f"    {key}: {kind}\n")
        keywords.append(f"        {key}: {WIDER.get(key, kind)} = ...,\n")
        if row["alias"]:
            attributes.append(f"    {row['alias']}: {kind}\n")
            keywords.append(f"        {row['alias']}: {kind} = ...,\n")
    if name in EXTRA:
        key, kind = EXTRA[name]
        attributes.append(f"    {key}: {kind}\n")
        keywords.append(f"        {key}: {kind} | Mapping[str, Any] | None = ...,\n")
    if name == "SamplingParams":
        for key, kind in GRAMMARS.items():
            attributes.append(f"    {key}: {kind}\n")
            keywords.append(f"        {key}: {kind} = ...,\n")
    head = f"\nclass {name}(_Settings):\n" + "".join(attributes)
    if name == "EngineConfig":
        head += "    def model_values(self) -> dict[str, Any]: ...\n"
    if name == "SamplingParams":
        head += "    def setting_values(self) -> dict[str, Any]: ...\n"
        head += "    def grammar_values(self) -> tuple[str, list[str]]: ...\n"
    head += "    def __init__(\n        self,\n        *,\n"
    return head + "".join(keywords) + "    ) -> None: ...\n"


def main() -> None:
    """Writes the file."""
    classes = [
        stub_of("SpeculativeConfig", "speculative"),
        stub_of("EngineConfig", "model"),
        stub_of("SamplingParams", "sampling"),
    ]
    with open(sys.argv[1], "w", encoding="utf-8") as output:
        output.write(HEAD + "".join(classes))


if __name__ == "__main__":
    main()
