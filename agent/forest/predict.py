"""`jct-agent predict`: what a model says of one row of features, and why."""

import argparse
import difflib
import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from agent.forest import file
from agent.forest.file import BadModel
from agent.forest.model import LEAST_CONFIDENCE, Prediction, Reason
from agent.forest.schema import Schema

EX_FAILED, EX_USAGE = 1, 2
JSON_VERSION = "v1"
WIDTH = 80
MOST_NAMED = 5
NO_MODEL = "no model, no prediction: 1 stands for it, with confidence 0"


class BadFeatures(ValueError):
    """The file is no JSON object of numbers and nulls, or names what is no feature."""


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 where the model cannot be used, 2 where the features cannot be read. What stands in for a
    prediction then is printed all the same, with the reason."""
    options = _options().parse_args(arguments)
    try:
        features = read_features(options.features)
    except BadFeatures as error:
        print(f"jct-agent predict: {error}", file=sys.stderr)
        return EX_USAGE
    reasons: tuple[Reason, ...] = ()
    why = ""
    try:
        model = file.read(options.model)
        check_names(options.features, features, model.schema)
        found, reasons = model.predict(features), model.reasons(features)
    except BadFeatures as error:
        print(f"jct-agent predict: {error}", file=sys.stderr)
        return EX_USAGE
    except BadModel as error:
        found, why = Prediction(1.0, 1.0, 1.0, 0.0), f"{options.model}: {error}"
        print(f"jct-agent predict: {why}; {NO_MODEL}", file=sys.stderr)
    print(_json(found, reasons, why) if options.json else "\n".join(_lines(found, reasons)))
    return EX_FAILED if why else 0


def read_features(path: Path) -> dict[str, float | None]:
    """Raises BadFeatures."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, float | None])
    except FileNotFoundError:
        raise BadFeatures(f"{path}: there is no such file") from None
    except OSError as error:
        raise BadFeatures(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadFeatures(f"{path} is no JSON object of numbers and nulls by feature: {error}") from None


def check_names(path: Path, features: Iterable[str], schema: Schema) -> None:
    """A name that is misspelt would otherwise count as a missing value. Raises BadFeatures."""
    unknown = [(name, _nearest(name, schema)) for name in features if name not in schema.names]
    if unknown:
        more = f" and {len(unknown) - MOST_NAMED} more" if len(unknown) > MOST_NAMED else ""
        named = ", ".join(
            f"{name!r} (did you mean {near!r}?)" if near else repr(name) for name, near in unknown[:MOST_NAMED]
        )
        listed = "" if all(near for _, near in unknown) else f"\n{_list(schema)}"
        raise BadFeatures(f"{path}: schema {schema.name} {schema.version} has no feature {named}{more}{listed}")


def _nearest(name: str, schema: Schema) -> str | None:
    return next(iter(difflib.get_close_matches(name, schema.names, 1)), None)


def _list(schema: Schema) -> str:
    text = f"its features: {', '.join(schema.names)}"
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ")


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jct-agent predict", description="Predicts a slowdown from one row of features. No daemon is needed."
    )
    parser.add_argument("--features", required=True, type=Path, metavar="FILE", help="JSON: a number or null a feature")
    parser.add_argument("--model", required=True, type=Path, metavar="FILE", help="as `calibrate` has written it")
    parser.add_argument("--json", action="store_true", help="JSON for scripts")
    return parser


def _json(found: Prediction, reasons: Sequence[Reason], fallback: str) -> str:
    document = {
        "apiVersion": JSON_VERSION, "slowdown": found.slowdown, "interval": [found.low, found.high],
        "confidence": found.confidence, "path": msgspec.to_builtins(reasons), "missing": found.missing,
        "beyond": found.beyond, "fallback": fallback,
    }  # fmt: skip
    return json.dumps(document, indent=2)


def _lines(found: Prediction, reasons: Sequence[Reason]) -> list[str]:
    is_heard = found.confidence >= LEAST_CONFIDENCE
    unheard = "" if is_heard else f": below {LEAST_CONFIDENCE}, so the running agent would not follow it"
    return [
        f"slowdown    {found.slowdown:.2f} ({found.low:.2f} to {found.high:.2f} nine times in ten)",
        f"confidence  {found.confidence:.2f}{unheard}",
        *(
            f"  {one.feature:<30}{'missing' if one.value is None else f'{one.value:,.2f}':>16}  x{one.factor:.2f}"
            for one in reasons
        ),
        *_wrapped("missing", found.missing),
        *_wrapped("not seen", found.beyond),
    ]


def _wrapped(title: str, names: Sequence[str]) -> list[str]:
    first, rest = f"{title:<12}", " " * 12
    return textwrap.wrap(", ".join(names), WIDTH, initial_indent=first, subsequent_indent=rest) if names else []
