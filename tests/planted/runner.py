"""Runs catchers with a defect in place: `python -m tests.planted.runner` reads questions and answers each with a line.

It imports what others have written and nothing of ours, and forks a child for each question. The child imports our
modules anew, the changed ones from their changed text, and runs the catchers in the same process. A question is
`{"changes": [[file, old, new], ...], "catchers": [...]}` in JSON, its answer a list with `caught`, which is null where
the catcher was not able to run, and what it `said`.

Invariants: no file is changed; a child lives for `LIMIT_S` at most.
"""

import builtins
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.planted.table import ROOT, Catcher, Change, changed

LIMIT_S = 120
_OURS = ("handlers", "local", "streamkeeper", "timeline", "tests", "bench")
# What takes long to import, and is never ours.
_THEIRS = (
    "pytest", "hypothesis", "boto3", "yaml", "jsonschema", "jsonata", "starlette.applications", "urllib3", "anyio",
    "states_language.execution", "aws_lambda_powertools", "httptools", "airspeed", "xdist.plugin", "uvicorn.server",
)  # fmt: skip


class Runner:
    """The process that is asked; `close` ends it."""

    def __init__(self) -> None:
        path = os.pathsep.join(
            [str(ROOT), str(ROOT / "states-language" / "src"), str(ROOT / "states-language" / "testing")]
        )
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTEST_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.planted.runner"], cwd=ROOT, env=environment | {"PYTHONPATH": path},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def caught(self, changes: Sequence[Change], catchers: Sequence[Catcher]) -> list[dict[str, Any]]:
        """Return the answer of each catcher with those changes in place."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"changes": [[one.file, one.old, one.new] for one in changes], "catchers": list(catchers)}
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer: list[dict[str, Any]] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """Return once the process has ended."""
        self._process.communicate(timeout=LIMIT_S)


# --- the process that is asked ----------------------------------------------------------------------------------------


def serve() -> None:
    """Answer each line of the standard input."""
    for name in _THEIRS:
        importlib.import_module(name)
    # What was imported until now is no garbage; each child would walk it again and again.
    gc.freeze()
    for line in sys.stdin:
        print(json.dumps(_in_a_child(line)), flush=True)


def _in_a_child(question: str) -> list[dict[str, Any]]:
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.close(readable)
        with os.fdopen(writable, "w") as answers:
            json.dump(_answers(question), answers)
            answers.flush()
            os._exit(0)
    os.close(writable)
    said = b""
    with os.fdopen(readable, "rb", buffering=0) as answers_of_the_child:
        while select.select([answers_of_the_child], [], [], LIMIT_S)[0] and (part := answers_of_the_child.read(65536)):
            said += part
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if not said:
        return [{"caught": None, "said": "the child died, or was not done in time"}]
    answer: list[dict[str, Any]] = json.loads(said)
    return answer


def _answers(question: str) -> list[dict[str, Any]]:
    asked = json.loads(question)
    # What runs prints a lot.
    with tempfile.TemporaryFile("w+") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
        _plant(changed(Change(*one) for one in asked["changes"]))
        answers = [_answer(catcher) for catcher in asked["catchers"]]
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        printed.seek(0)
        tail = printed.read()[-3_000:]
        return [one if one["caught"] else one | {"said": f"{one['said']}\n{tail}"} for one in answers]


def _answer(catcher: Catcher) -> dict[str, Any]:
    try:
        from tests.planted.catchers import caught

        return dict(zip(("caught", "said"), caught(catcher), strict=True))
    except BaseException:
        return {"caught": None, "said": traceback.format_exc()}


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles one module from a text other than the file's; writes nothing."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, _name: str) -> CodeType:
        return compile(self._text, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules whose text is changed."""

    def __init__(self, texts: dict[Path, str]) -> None:
        self._texts = texts

    def find_spec(
        self, name: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        is_ours = name.partition(".")[0] in _OURS
        spec = importlib.machinery.PathFinder.find_spec(name, path) if is_ours else None
        if spec is None or spec.origin is None or Path(spec.origin) not in self._texts:
            return None
        loader = _Loader(name, spec.origin, self._texts[Path(spec.origin)])
        return importlib.util.spec_from_file_location(
            name, spec.origin, loader=loader, submodule_search_locations=spec.submodule_search_locations
        )


def _plant(texts: dict[Path, str]) -> None:
    """Let all later imports and openings find the changed texts."""
    assert not {"handlers", "local", "streamkeeper", "timeline"} & sys.modules.keys()
    sys.meta_path.insert(0, _Finder(texts))
    data = {str(path): text for path, text in texts.items() if path.suffix != ".py"}
    plain = io.open

    def opened(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
        text = data.get(os.fspath(file)) if isinstance(file, str | os.PathLike) else None
        if text is None:
            return plain(file, mode, *more, **named)
        return io.BytesIO(text.encode()) if "b" in mode else io.StringIO(text)

    if data:
        io.open = builtins.open = opened


if __name__ == "__main__":
    serve()
