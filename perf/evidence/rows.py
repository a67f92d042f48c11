"""Rows of perf/baselines: what they hold, and how they are read and checked. perf/README.md says what the fields mean."""
import json
import math
import re
import statistics
from pathlib import Path

BASELINES = Path(__file__).resolve().parent.parent / "baselines"

NUMBER = (int, float)
REQUIRED = {"id": str, "value": NUMBER, "unit": str, "command": (str, type(None)), "date": (str, type(None)),
            "machine": str}
OPTIONAL = {"better": str, "low": NUMBER, "high": NUMBER, "runs": int, "bar": NUMBER, "driver": str, "library": str,
            "note": str}


class Malformed(Exception):
    """A file of rows that does not keep to the schema. The text says where and why."""


def complaint(row):
    """Why a row does not keep to the schema, or None."""
    if not isinstance(row, dict):
        return "not an object"
    for name in REQUIRED:
        if name not in row:
            return f"no field '{name}'"
    for name, value in row.items():
        types = REQUIRED.get(name) or OPTIONAL.get(name)
        if types is None:
            return f"unknown field '{name}'"
        if not isinstance(value, types) or isinstance(value, bool):
            return f"field '{name}' has the wrong type"
        if isinstance(value, NUMBER) and not math.isfinite(value):
            return f"field '{name}' is not finite"
    if not re.fullmatch(r"[\w.+-]+(/[\w.+-]+)+", row["id"]):
        return f"'{row['id']}' is no id: words with '/' between them"
    if row["date"] is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", row["date"]):
        return f"'{row['date']}' is no date (2026-01-31, or null where it was not recorded)"
    if row.get("better", "lower") not in ("lower", "higher"):
        return "'better' is neither 'lower' nor 'higher'"
    if "bar" in row and "better" not in row:
        return "a 'bar' without 'better'"
    if not row.get("low", -math.inf) <= row["value"] <= row.get("high", math.inf):
        return "'value' is not between 'low' and 'high'"
    return None


def parse(text, name):
    """The rows of JSON lines. `name` is what errors call them."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise Malformed(f"{name}:{number}: not JSON: {error.msg}") from None
        why = complaint(row)
        if why:
            raise Malformed(f"{name}:{number}: {why}")
        rows.append(row)
    return rows


def load(folder=BASELINES):
    """All baselines by id."""
    files = sorted(Path(folder).glob("*.jsonl"))
    if not files:
        raise Malformed(f"{folder}: no *.jsonl")
    by_id = {}
    for file in files:
        for row in parse(file.read_text(encoding="utf-8"), file.name):
            if row["id"] in by_id:
                raise Malformed(f"{file.name}: id '{row['id']}' occurs twice")
            by_id[row["id"]] = row
    return by_id


def medians(rows):
    """By id; several runs of one id become one row with their median."""
    runs = {}
    for row in rows:
        runs.setdefault(row["id"], []).append(row)
    by_id = {}
    for name, same in runs.items():
        values = [row["value"] for row in same]
        by_id[name] = dict(same[-1], value=statistics.median(values))
        if len(same) > 1:
            by_id[name].update(low=min(values), high=max(values), runs=len(same))
    return by_id


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def best_times(by_id, contender):
    """rankperf's cells, (ranks, collective, size): the better of stream and graph time. Both must be there."""
    cells = {}
    for name, row in by_id.items():
        parts = name.split("/")
        if len(parts) == 6 and parts[:2] == ["rankperf", contender] and parts[5] in ("wall_us", "graph_us"):
            cells.setdefault(tuple(parts[2:5]), {})[parts[5]] = row["value"]
    return {cell: min(times.values()) for cell, times in cells.items() if len(times) == 2}
