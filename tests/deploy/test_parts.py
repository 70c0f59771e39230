"""The request template says of a stream that is read in parts which they are, as the function makes their ids."""

import json
import shutil
from pathlib import Path

import pytest

from handlers.profile.addresses import part_ids
from local.service import osls, vtl
from local.service.deployed_code import with_names
from local.stack import Route, read
from local.stages import ROOT
from tests.deploy import node
from tests.deploy.apache_velocity import apache_velocity

SCRIPT = """
const stage = { 'sls:stage': 'test', 'self:custom.upstreams': {} };
return require('./packaging/parts.cjs')({ resolveVariable: async (name) => stage[name] });
"""
PARTS = ["btc", "config/a..m", "~x,y*@+:2"]


def packaged(folder: Path, parts: list[str]) -> str:
    """What packaging puts into the template for one profile with these parts and one without."""
    shutil.copytree(ROOT / "packaging", folder / "packaging")
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    (folder / "env" / "streams").mkdir(parents=True)
    for name, more in (("prices", f"parts = {json.dumps(parts)}"), ("demo", "")):
        text = f'address = "https://x/{{name}}"\nframing = "sse"\n{more}\n'
        (folder / "env" / "streams" / f"{name}.toml").write_text(text)
    said: str = node.run(SCRIPT, folder=folder)
    return said


def test_a_start_of_the_whole_names_its_parts(tmp_path: Path) -> None:
    """And a start of a part, or of another stream, names none; the local run writes the same as packaging."""
    route = next(route for route in read(osls.template("test"), {}).routes if isinstance(route, Route))
    parts = list(part_ids("prices", PARTS))
    template = with_names(route.request_templates["application/json"], ["demo", "prices"], {"prices": parts})
    assert json.loads(packaged(tmp_path, PARTS).split("'")[1]) == parts
    assert json.loads(template.partition("#set($parts = ")[2].split("'")[1]) == parts
    with apache_velocity() as apache:
        for stream_id, expected in (("prices", parts), ("prices:btc", None), ("demo", None)):
            call = vtl.Call("", {"streamId": stream_id}, {"a": "'"})
            params = {"path": {"streamId": stream_id}, "querystring": {"a": "'"}, "header": {}}
            text = vtl.render(template, call)
            assert apache.render(template, body={"body": ""}, params=params, context={})["text"] == text
            data = json.loads(json.loads(text)["input"])
            assert (data.get("parts"), data["queryStringParameters"]) == (expected, {"a": "'"})


@pytest.mark.parametrize("part", ["it's", "$x", "#end", "a b", ""])
def test_what_would_change_the_template_is_refused(tmp_path: Path, part: str) -> None:
    """By packaging, before anything is made."""
    with pytest.raises(node.Failed, match=r"prices\.toml has wrong parts"):
        packaged(tmp_path, ["a", part])
