"""The configuration objects.

Keys, types, defaults and help come from the engine's one table of settings, the same that makes the
YAML file's keys and the program's flags. `config.pyi` is made from it when the package is built.
"""

import inspect
import json
import math
from typing import Any, ClassVar, Mapping

from talon import _talon

_TYPES = {"bool": bool, "int": int, "float": float, "str": str}
_TYPES |= {"list[int]": list[int], "list[str]": list[str]}
_GROUP = "speculative_config"


def _yaml_value(value: Any) -> str:
    """A value as YAML that means the same to every reader."""
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else (".inf" if value > 0 else "-.inf")
    return json.dumps(value, ensure_ascii=False)


class _Settings:
    """Values by key, checked when they are set."""

    _set: ClassVar[str]
    _rows: ClassVar[dict[str, dict[str, Any]]]

    def __init_subclass__(cls, set_name: str) -> None:
        cls._set = set_name
        cls._rows = {row["key"]: row for row in _talon.settings(set_name)}
        keys = [f"{key}: {row['help']} ({row['default']!r})" for key, row in cls._rows.items()]
        cls.__doc__ = inspect.cleandoc(cls.__doc__ or "") + "\n\nKeys:\n  " + "\n  ".join(keys)
        cls.__signature__ = inspect.Signature(cls._parameters())

    @classmethod
    def _parameters(cls) -> list[inspect.Parameter]:
        return [
            inspect.Parameter(
                key,
                inspect.Parameter.KEYWORD_ONLY,
                default=row["default"],
                annotation=_TYPES[row["type"]],
            )
            for key, row in cls._rows.items()
        ]

    def __init__(self, **keys: Any) -> None:
        for key, row in self._rows.items():
            default = row["default"]
            self.__dict__[key] = list(default) if isinstance(default, list) else default
        for key, value in keys.items():
            self._assign(key, value)

    def _assign(self, key: str, value: Any) -> None:
        try:
            key, value = _talon.normalise(self._set, key, value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{type(self).__name__}: {error}") from None
        self.__dict__[key] = value

    def __setattr__(self, key: str, value: Any) -> None:
        self._assign(key, value)

    def __getattr__(self, name: str) -> Any:
        """Another name of a key (`enable_eagle_target_tree`)."""
        for key, row in type(self)._rows.items():
            if row["alias"] == name and name:
                return self.__dict__[key]
        raise AttributeError(f"{type(self).__name__} has no key '{name}'")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """What differs from the defaults."""
        default = type(self)()
        changed = [
            f"{key}={value!r}"
            for key, value in self.__dict__.items()
            if value != default.__dict__[key]
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def replace(self, **keys: Any):
        """A copy with some keys changed."""
        return type(self)(**{**self.__dict__, **keys})

    def to_dict(self) -> dict[str, Any]:
        """All keys with their values."""
        return {
            key: list(value) if isinstance(value, list) else value
            for key, value in self.__dict__.items()
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]):
        """The reverse of `to_dict`; missing keys have their defaults."""
        return cls(**values)

    def to_yaml(self) -> str:
        """All keys as YAML, for `talon --config` or `from_yaml`."""
        return "".join(f"{key}: {_yaml_value(value)}\n" for key, value in self.__dict__.items())

    @classmethod
    def from_yaml(cls, text: str):
        """Reads the text of a configuration file. Each class takes its own keys of it, but all keys
        of the file must be valid: ValueError names the line of one that is not."""
        return cls(**_talon.read_yaml(text, "yaml")[cls._set])


class SpeculativeConfig(_Settings, set_name="speculative"):
    """How to speculate: the YAML file's group `speculative_config`."""

    def to_yaml(self) -> str:
        """The group as YAML, for `talon --config` or `from_yaml`."""
        lines = super().to_yaml().splitlines(keepends=True)
        return f"{_GROUP}:\n" + "".join(f"  {line}" for line in lines)


class EngineConfig(_Settings, set_name="model"):
    """The engine: model, device, memory; `speculative_config` is a SpeculativeConfig or a dict."""

    @classmethod
    def _parameters(cls) -> list[inspect.Parameter]:
        speculative = inspect.Parameter(
            _GROUP,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=SpeculativeConfig | None,
        )
        return super()._parameters() + [speculative]

    def __init__(self, **keys: Any) -> None:
        speculative = keys.pop(_GROUP, None)
        super().__init__(**keys)
        self._assign(_GROUP, speculative)

    def _assign(self, key: str, value: Any) -> None:
        if key != _GROUP:
            super()._assign(key, value)
            return
        if value is None or isinstance(value, Mapping):
            value = SpeculativeConfig(**(value or {}))
        if not isinstance(value, SpeculativeConfig):
            raise TypeError(f"EngineConfig: {_GROUP}: {value!r}, must be a SpeculativeConfig")
        self.__dict__[_GROUP] = value

    def model_values(self) -> dict[str, Any]:
        """All keys but the group."""
        return {key: value for key, value in self.__dict__.items() if key != _GROUP}

    def to_dict(self) -> dict[str, Any]:
        """All keys with their values, the group as a dict of its own."""
        return {**self.model_values(), _GROUP: self.speculative_config.to_dict()}

    def to_yaml(self) -> str:
        """All keys as YAML, for `talon --config` or `from_yaml`."""
        lines = [f"{key}: {_yaml_value(value)}\n" for key, value in self.model_values().items()]
        return "".join(lines) + self.speculative_config.to_yaml()

    @classmethod
    def from_yaml(cls, text: str):
        """Reads the text of a configuration file; `SamplingParams.from_yaml` reads its others."""
        values = _talon.read_yaml(text, "yaml")
        return cls(**values["model"], speculative_config=values["speculative"])


_GRAMMARS = {"json_schema": Mapping[str, Any] | bool | str | None, "regex": str | None}
_GRAMMARS |= {"grammar": str | None, "choice": list[str] | None}


class SamplingParams(_Settings, set_name="sampling"):
    """How to draw tokens; the defaults are greedy. Besides the file's forms `logit_bias` may be a
    dict {token: bias}, `bad_words` a list of texts, and `seed` None (random).

    What the text must match, at most one of them: `json_schema` (a dict, or its JSON), `regex`,
    `grammar` (GBNF), `choice` (a list of texts). These are not keys of the file."""

    @classmethod
    def _parameters(cls) -> list[inspect.Parameter]:
        return super()._parameters() + [
            inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=form)
            for key, form in _GRAMMARS.items()
        ]

    def __init__(self, **keys: Any) -> None:
        super().__init__()
        self.__dict__.update(dict.fromkeys(_GRAMMARS))
        for key, value in keys.items():
            self._assign(key, value)

    def _assign_grammar(self, key: str, value: Any) -> None:
        fits = value is None or isinstance(value, str)
        if key == "json_schema":
            fits = fits or isinstance(value, (Mapping, bool))
        elif key == "choice":
            value = None if value is None else [value] if fits else list(value)
            fits = value is None or (bool(value) and all(isinstance(one, str) for one in value))
        if not fits:
            raise TypeError(f"SamplingParams: {key}: {value!r}, must be {_GRAMMARS[key]}")
        self.__dict__[key] = value

    def setting_values(self) -> dict[str, Any]:
        """All keys of the file."""
        return {key: value for key, value in self.to_dict().items() if key not in _GRAMMARS}

    def grammar_values(self) -> tuple[str, list[str]]:
        """What the text must match, by its key, and its text or texts; "" and none if anything."""
        given = {key: self.__dict__[key] for key in _GRAMMARS if self.__dict__[key] is not None}
        if len(given) > 1:
            raise ValueError(f"SamplingParams: {' and '.join(given)}: only one may be given")
        for key, value in given.items():
            texts = value if isinstance(value, list) else [value]
            return key, [one if isinstance(one, str) else json.dumps(one) for one in texts]
        return "", []

    def to_yaml(self) -> str:
        """All keys of the file as YAML, for `talon --config` or `from_yaml`."""
        lines = (f"{key}: {_yaml_value(value)}\n" for key, value in self.setting_values().items())
        return "".join(lines)

    def _assign(self, key: str, value: Any) -> None:
        if key in _GRAMMARS:
            self._assign_grammar(key, value)
            return
        if key == "logit_bias" and isinstance(value, Mapping):
            value = ",".join(f"{token}={bias}" for token, bias in value.items())
        elif key == "bad_words" and isinstance(value, (list, tuple)):
            value = "\n".join(value)
        elif key == "seed" and value is None:
            value = -1
        elif key == "max_tokens" and isinstance(value, int) and value < 1:
            raise ValueError(f"SamplingParams: max_tokens: {value}, must be 1 or more")
        super()._assign(key, value)
