"""The Terraform module and the CDK constructs plan and synthesize their examples, without credentials."""

import json
import os
import re
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

from local import stages
from tests.deploy.account import opened
from tests.deploy.terraform_module import blocks, plain, problems

# What these need is large, for these tests alone, and named nowhere else: it comes from the registries when they run.
CDK, CONSTRUCTS, HCL = "2.275.0", "10.8.1", "8.1.4"
OWN = {"Stage", "CodeBucket", "CodeKey", "ProfilesBucket", "ProfilesFolder"}
PROFILE = 'address = "https://prices.example.org/{name}"\nframing = "sse"\n'
# An emulator's endpoint, in place of what the example says of AWS.
EMULATED = """
provider "aws" {{
  region                      = "us-east-1"
  access_key                  = "none"
  secret_key                  = "none"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true
  s3_use_path_style           = true
  endpoints {{
    s3             = "{url}"
    cloudformation = "{url}"
  }}
}}
"""
OTHER = """  profiles = {
    other = "address = \\"https://other.example.org\\"\\nframing = \\"sse\\"\\n"
"""
# What the files say, what somebody might write there instead, and what is wrong with it.
BROKEN = (
    ("source_hash = ", "source_sum = ", "aws_s3_object.zip: Additional properties are not allowed"),
    ('"zip" {\n  bucket = local.bucket\n', '"zip" {\n', "aws_s3_object.zip: 'bucket' is a required property"),
    ('"aws_s3_object" "template"', '"aws_s3_item" "template"', "no type aws_s3_item is known"),
    ("block_public_acls       = true", 'block_public_acls = "yes"', "'yes' is not valid"),
    ("var.stage}/", "var.stages}/", "var.stages is nowhere declared"),
    ("aws_s3_object.zip.key", "aws_s3_object.zip.keys", "aws_s3_object.zip.keys is nowhere declared"),
    ('  release = "../../release"\n', "", "module.streamkeeper: release is missing"),
    ("  stage   =", "  stages =", "module.streamkeeper: stages is no variable"),
    ("streamkeeper.endpoint", "streamkeeper.address", "module.streamkeeper.address is nowhere declared"),
)
# What a construct says of a folder, a profile's name, a setting and its value.
WRONG = {
    "app": "files of one release",
    "named": "of a profile must",
    "other": "is none of",
    "value": "KeepDays must be a whole number from 0 to 3650",
}
pytestmark = pytest.mark.long


def run(folder: Path, *command: str, **variables: str) -> str:
    """Return the output of a command that must succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | variables
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path, release: Path) -> Path:
    """Return the modules and the examples, beside a release."""
    folder = tmp_path / "stacks"
    for name in ("packaging", "examples"):
        shutil.copytree(stages.ROOT / name, folder / name)
    shutil.copytree(release, folder / "release")
    return folder


@pytest.fixture
def parameters(release: Path) -> dict[str, Any]:
    (path,) = release.glob("*.template.json")
    found: dict[str, Any] = json.loads(path.read_text())["Parameters"]
    return found


def python_with(folder: Path, *wanted: str) -> Path:
    """Return a Python of its own that has these libraries."""
    venv.create(folder, with_pip=True)
    run(folder, "bin/pip", "install", "--quiet", "--disable-pip-version-check", *wanted)
    return folder / "bin" / "python"


def check(given: dict[str, Any], parameters: dict[str, Any]) -> None:
    """Check that each is a valid parameter of the template, and that no required parameter is missing."""
    assert OWN | {"KeepDays", "ApiAuth"} <= set(given) <= set(parameters)
    assert {name for name, one in parameters.items() if "Default" not in one} <= set(given)
    for name, value in given.items():
        if isinstance(value, str) and "AllowedValues" in parameters[name]:
            assert value in parameters[name]["AllowedValues"]


@pytest.mark.cpu(300)
def test_both_constructs_synthesize_the_same(project: Path, parameters: dict[str, Any], tmp_path: Path) -> None:
    """In TypeScript and Python they make one nested stack of the release's template, with the profile as an object.

    The profiles are in a folder of the stage, because an upload removes every other file from its folder. A folder with
    two releases is refused, because it does not show which one is meant; so are a name that Terraform refuses, a
    setting that the release does not have, and a value that CloudFormation refuses.
    """
    python = python_with(tmp_path, f"aws-cdk-lib=={CDK}", f"constructs=={CONSTRUCTS}")
    wanted = (f"aws-cdk-lib@{CDK}", f"constructs@{CONSTRUCTS}", "typescript@5", "@types/node@20")
    run(project, "npm", "install", "--no-save", "--no-audit", "--no-fund", "--silent", *wanted)
    options = ("--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "node16")
    run(project, "node_modules/.bin/tsc", *options, "--outDir", "build", "examples/cdk/app.ts")
    examples = project / "examples" / "cdk"
    apps = {"ts": ("node", "../../build/examples/cdk/app.js"), "py": (str(python), "app.py")}
    place = {"PYTHONPATH": str(project / "packaging" / "cdk")}
    for name, command in apps.items():
        run(examples, *command, CDK_OUTDIR=str(project / name), **place)
    second = project / "release" / "streamkeeper-0.0.9.template.json"
    for app in (project / "build" / "examples" / "cdk" / "app.js", examples / "app.py"):
        app.with_stem("named").write_text(app.read_text().replace("prices", "größe", 1))
        app.with_stem("value").write_text(re.sub(": 7\\b", ": 3651", app.read_text()))
        app.with_stem("other").write_text(app.read_text().replace("KeepDays", "KeepDay", 1))
    for command in apps.values():
        for stem, words in WRONG.items():
            second.touch() if stem == "app" else second.unlink(missing_ok=True)
            own = [part.replace("app.", f"{stem}.") for part in command]
            with pytest.raises(AssertionError, match=words):
                run(examples, *own, CDK_OUTDIR=str(project / "none"), **place)
    (name,) = (path.name for path in (project / "ts").glob("*.template.json"))
    made = json.loads((project / "ts" / name).read_text())
    for one in made["Resources"].values():
        # jsii says of no markers that there are none.
        if one["Type"] == "Custom::CDKBucketDeployment":
            one["Properties"].setdefault("SourceMarkersConfig", [{}])
    assert made == json.loads((project / "py" / name).read_text())
    kinds = ("AWS::CloudFormation::Stack", "Custom::CDKBucketDeployment")
    stack, upload = (next(one for one in made["Resources"].values() if one["Type"] == kind) for kind in kinds)
    check(stack["Properties"]["Parameters"], parameters)
    assert upload["Properties"]["DestinationBucketKeyPrefix"] == "streamkeeper/prod/profiles/"
    assert stack["Properties"]["Parameters"]["ProfilesFolder"] == "streamkeeper/prod/profiles/"
    assets = {path.name: path for path in (project / "ts").iterdir()}
    template = assets[f"asset.{stack['Properties']['TemplateURL']['Fn::Sub'].rpartition('/')[2]}"]
    assert template.read_bytes() == next((project / "release").glob("*.template.json")).read_bytes()
    assert f"asset.{stack['Properties']['Parameters']['CodeKey']}" in assets
    assert [path.read_text() for path in (project / "ts").glob("*/prices.toml")] == [PROFILE]


@pytest.mark.cpu(120)
def test_the_terraform_module_makes_its_example(project: Path, parameters: dict[str, Any], tmp_path: Path) -> None:
    """If `terraform` and its provider exist, it plans and applies to an emulator. Otherwise only the test below runs.

    A person can read the plan: it does not show the template. The former zip stays until the stack has the next one.
    A plan refuses a list of sinks that CloudFormation would refuse.
    TERRAFORM_PLUGINS names a folder with the provider, if no registry of Terraform answers.
    """
    check(handed_over(project), parameters)
    example = project / "examples" / "terraform"
    plugins = os.environ.get("TERRAFORM_PLUGINS")
    begin = ("terraform", "init", "-input=false", *([f"-plugin-dir={plugins}"] if plugins else []))
    if shutil.which("terraform") is None or subprocess.run(begin, cwd=example, capture_output=True).returncode != 0:
        return
    with opened(tmp_path / "account") as account:
        (example / "emulated_override.tf").write_text(EMULATED.format(url=account.url))
        plan = planned(example)
        assert set(plan.values()) == {"create"}
        assert {one.partition(".")[0] for one in plan} >= {"aws_cloudformation_stack", "aws_s3_object"}
        assert len(run(example, "terraform", "show", "-no-color", "plan")) < 20_000
        run(example, "terraform", "apply", "-input=false", "plan")
        assert account.status("streamkeeper-prod") == "CREATE_COMPLETE"
        outputs = json.loads(run(example, "terraform", "output", "-json"))
        assert outputs["endpoint"]["value"].endswith("/prod")
        assert planned(example) == {}
        text = (example / "main.tf").read_text()
        (example / "main.tf").write_text(text.replace("  profiles = {\n", OTHER))
        assert planned(example) == {'aws_s3_object.profile["other"]': "create"}
        (example / "main.tf").write_text(text.replace('ApiAuth = "iam"', 'ProfileSinks = "queue"'))
        with pytest.raises(AssertionError, match="settings: ProfileSinks must be ARNs"):
            planned(example)
        (example / "main.tf").write_text(text.replace('ApiAuth = "iam"', "LogApiCalls = true"))
        next((project / "release").glob("*.zip")).write_bytes(b"the next")
        stack, code = "aws_cloudformation_stack.streamkeeper", "aws_s3_object.zip"
        assert planned(example) == {stack: "update", code: "create+delete"}


@pytest.mark.cpu(30)
def test_the_terraform_files_fit_the_schema_of_the_provider(project: Path, tmp_path: Path) -> None:
    """Their syntax as JSON fits it, and each possible mistake there is named.

    A setting may be a number beside a boolean. If an update fails, CloudFormation still finds the former zip.
    """
    python = python_with(tmp_path / "python", f"python-hcl2=={HCL}")
    places = sorted((project / "packaging" / "terraform").glob("*.tf"))
    example = project / "examples" / "terraform" / "main.tf"
    module, broken = read_as_hcl(python, *places), tmp_path / "broken.tf"
    assert problems(module) == []
    parts = {name: one for kind in ("variable", "resource") for name, one in blocks(plain(module), kind)}
    assert parts["settings"]["type"] == "${map(string)}"
    assert parts["aws_s3_object.zip"]["lifecycle"] == [{"create_before_destroy": True}]
    assert problems(read_as_hcl(python, example), {"streamkeeper": module}) == []
    for old, new, words in BROKEN:
        text = next(path.read_text() for path in (*places, example) if old in path.read_text())
        broken.write_text(text.replace(old, new, 1))
        is_example = text == example.read_text()
        others = [] if is_example else [path for path in places if path.read_text() != text]
        found = problems(read_as_hcl(python, broken, *others), {"streamkeeper": module} if is_example else None)
        assert words in " ".join(found), (new, found)
    broken.write_text("resource {")
    with pytest.raises(AssertionError, match="UnexpectedToken"):
        read_as_hcl(python, broken)


def planned(example: Path) -> dict[str, str]:
    """Return what Terraform would do to which of the module's resources."""
    run(example, "terraform", "plan", "-input=false", "-out=plan")
    plan = json.loads(run(example, "terraform", "show", "-json", "plan"))
    changes = {one["address"]: one["change"]["actions"] for one in plan["resource_changes"]}
    return {
        name.removeprefix("module.streamkeeper."): "+".join(actions)
        for name, actions in changes.items()
        if actions != ["no-op"]
    }


def read_as_hcl(python: Path, *places: Path) -> list[Any]:
    """Return the files' content as hcl2 reads it; a syntax error fails."""
    script = "import hcl2, json, sys; print(json.dumps([hcl2.load(open(path)) for path in sys.argv[1:]]))"
    found: list[Any] = json.loads(run(python.parent, str(python), "-c", script, *map(str, places)))
    return found


def handed_over(project: Path) -> dict[str, Any]:
    """Return the parameters that the module passes on, and those of the example, by their files."""
    module, example = (project / one / "terraform" / "main.tf" for one in ("packaging", "examples"))
    own = re.search(r"parameters = merge\(var\.settings, \{(.*?)\}\)", module.read_text(), re.DOTALL)
    given = re.search(r"settings = \{ (.*?) \}", example.read_text())
    assert own is not None
    assert given is not None
    names = re.findall(r"(?m)^ *(\w+) +=", own[1])
    return dict.fromkeys(names) | dict(re.findall(r'(\w+) = "?(\w+)"?', given[1]))
