"""Text to a plain document. YAML as version 1.2 reads it: `no`, `1:30:00` and `2026-01-01` stay the text they are."""

import json
import re
from typing import Any

import yaml

from scheduler.core.errors import Code, JctError

MAX_BYTES = 256 * 1024


class _Loader(yaml.SafeLoader):
    """SafeLoader with the core schema of YAML 1.2, without aliases (they can blow up), keys given once."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not supported", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag == "tag:yaml.org,2002:int":
                key.tag = "tag:yaml.org,2002:str"  # as in JSON, where a key is text: `on_exit: {3: requeue}`
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise yaml.MarkedYAMLError(problem="keys must be text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


def _decimal(loader: _Loader, node: yaml.ScalarNode) -> int:
    """YAML 1.1 would read 010 as octal; here it is ten."""
    return int(loader.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _decimal)


def _json(text: str) -> Any:
    """JSON where it is JSON; else the text may still be a mapping in YAML's braces."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise JctError(Code.BAD_SPEC, "the job file gives a key twice")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError:
        return yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader


def read_text(text: str) -> dict[str, Any]:
    """A YAML or JSON job file as a dictionary. Raises JctError BAD_SPEC with line and column, TOO_LARGE."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise JctError(Code.TOO_LARGE, f"the job file has {size} bytes; the limit is {MAX_BYTES}")
    try:
        document = _json(text) if text.lstrip().startswith("{") else yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise JctError(Code.BAD_SPEC, f"the job file is no valid YAML{where}: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise JctError(Code.BAD_SPEC, f"the job file is no valid YAML: {error}") from None
    except RecursionError:
        raise JctError(Code.BAD_SPEC, "the job file is nested too deeply") from None
    if not isinstance(document, dict):
        raise JctError(Code.BAD_SPEC, "the job file must be a mapping of fields, such as `name: my-job`")
    return document


def encoded_size(document: Any) -> int:
    """Bytes of a document as JSON; what the size limit is applied to where the text is not at hand."""
    return len(json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass"))
