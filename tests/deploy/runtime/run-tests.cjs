// Runs pytest on what ships under the Lambda runtime's version of Python: CPython 3.13 as WebAssembly, the same that
// compiles it. Arguments: the zip, the project's folder, the folder of installed packages, then the tests and pytest's
// own options. Exits as pytest does. There are no sockets, threads and processes.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');

// The tests read every profile, those too that this stage does not ship.
const TESTS = ['tests/__init__.py', 'tests/shipped.py', 'tests/handlers', 'env/streams'];
const PACKAGES = /^(_?pytest|py\.py|hypothesis|_hypothesis_\w+\.py|pluggy|iniconfig|packaging|pygments|sortedcontainers|(hypothesis|pytest)-[\d.]+\.dist-info)$/;
// A folder's conftest.py may need what is not here; and there is no descriptor to capture.
const OPTIONS = ['-q', '-W', 'error', '-c', '/dev/null', '--rootdir=/var/task', '--import-mode=importlib', '--noconftest',
  '--capture=sys', '-p', 'no:cacheprovider', '-p', '_hypothesis_pytestplugin'];

// Copies a file or folder into the memory of the interpreter, without what the host's Python compiled.
function copy(memory, outside, inside) {
  if (!fs.statSync(outside).isDirectory()) {
    memory.mkdirTree(path.posix.dirname(inside));
    memory.writeFile(inside, fs.readFileSync(outside));
    return;
  }
  for (const name of fs.readdirSync(outside)) {
    if (name === '__pycache__' || name.endsWith('.so')) continue;
    copy(memory, path.join(outside, name), `${inside}/${name}`);
  }
}

async function main([zip, project, packages, ...options]) {
  const { loadPyodide } = await import('pyodide');
  const python = await loadPyodide({ env: { HOME: '/', PYTHONDONTWRITEBYTECODE: '1', PYTEST_DISABLE_PLUGIN_AUTOLOAD: '1' } });
  const lines = [];
  python.setStdout({ batched: (line) => lines.push(line) });
  python.setStderr({ batched: (line) => lines.push(line) });
  python.unpackArchive(new Uint8Array(fs.readFileSync(zip)), 'zip', { extractDir: '/var/task' });
  for (const name of TESTS) copy(python.FS, path.join(project, name), `/var/task/${name}`);
  for (const name of fs.readdirSync(packages).filter((name) => PACKAGES.test(name))) {
    copy(python.FS, path.join(packages, name), `/packages/${name}`);
  }
  copy(python.FS, path.join(__dirname, 'hypothesis_native.py'), '/packages/hypothesis_native.py');
  const run = python.runPython(`
import importlib, os, sys
sys.path += ["/var/task", "/packages"]
os.chdir("/var/task")
for name in ("_native", "_native.internal", "_native.internal.floats", "_native.internal.cathetus"):
    sys.modules["hypothesis." + name] = importlib.import_module("hypothesis_native")
import pytest
from hypothesis import HealthCheck, settings
settings.register_profile("runtime", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("runtime")
lambda options: int(pytest.main(options.to_py()))
`);
  const code = run([...OPTIONS, ...options]);
  parentPort.postMessage({ code, output: lines.join('\n') });
}

// A traceback of pytest's needs more stack than Node gives its own thread.
if (isMainThread) {
  const worker = new Worker(__filename, { workerData: process.argv.slice(2), resourceLimits: { stackSizeMb: 64 } });
  worker.on('message', ({ code, output }) => {
    process.exitCode = code;
    console.log(output);
  });
} else {
  main(workerData);
}
