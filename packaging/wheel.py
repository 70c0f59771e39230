"""`make wheel`: compiles the templates of the stage local with osls, and builds a wheel with them in dist/."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from local.checkout import ROOT
from local.service import osls
from local.terminal import UserError

STAGE = "local"


def main() -> int:
    """Returns the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        for delivers in (False, True):
            try:
                template = osls.template(STAGE, delivers=delivers)
            except UserError as mistake:
                print(f"make wheel: {mistake}", file=sys.stderr)
                return 2
            name = osls.kept_template(STAGE, Path("wheel"), delivers=delivers).name
            Path(folder, name).write_text(json.dumps(template), encoding="utf-8")
        shutil.rmtree(ROOT / "build", ignore_errors=True)  # what was built before would get into the wheel
        for earlier in (ROOT / "dist").glob("streamkeeper-*.whl"):  # pipx installs dist/*.whl
            earlier.unlink()
        command = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", "dist", "."]
        environment = dict(os.environ) | {"STREAMKEEPER_TEMPLATES": folder}
        status = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, check=False).returncode
    if status == 0:
        print(*sorted((ROOT / "dist").glob("streamkeeper-*.whl")), sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
