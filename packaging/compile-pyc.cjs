// An osls plugin that adds compiled files to the zip, so that a cold start compiles nothing.
// A .pyc belongs to one version of Python, the runtime's, and the machine that packages need not have that one. So the
// compiler is CPython 3.13 as WebAssembly (pyodide). The files are hash-based and unchecked: Lambda never compares them
// with the sources, whose times a zip does not keep. The sources stay, for tracebacks.
// It runs after serverless-python-requirements, which must come before it in the list of plugins.
'use strict';

const fs = require('node:fs/promises');
const JSZip = require('jszip');

// Returns a function (path in the zip, source as bytes) -> compiled file as bytes.
const COMPILER = `
from importlib._bootstrap_external import _code_to_hash_pyc
from importlib.util import source_hash

def compile_file(path, source):
    source = source.to_bytes()
    code = compile(source, "/var/task/" + path, "exec", dont_inherit=True)
    return bytes(_code_to_hash_pyc(code, source_hash(source), checked=False))

compile_file
`;
const TAG = 'cpython-313';
// One time for every file: the same sources make the same zip.
const DATE = new Date('1980-01-01T00:00:00Z');

async function compiler() {
  const { loadPyodide } = await import('pyodide');
  const python = await loadPyodide();
  const tag = python.runPython('import sys; sys.implementation.cache_tag');
  if (tag !== TAG) throw new Error(`The compiler is ${tag}, but the runtime wants ${TAG}.`);
  const compileFile = python.runPython(COMPILER);
  return (path, source) => {
    try {
      const result = compileFile(path, source);
      const bytes = result.toJs();
      result.destroy();
      return bytes;
    } catch (error) {
      throw new Error(`${path} does not compile for the runtime: ${error.message.trim().split('\n').at(-1)}`);
    }
  };
}

// Adds __pycache__/<module>.cpython-313.pyc for every <module>.py of the zip at `artifact`.
async function addCompiledFiles(artifact) {
  const zip = await JSZip.loadAsync(await fs.readFile(artifact));
  const compileFile = await compiler();
  for (const file of zip.file(/\.py$/)) {
    const [, folder, module] = /^(.*\/)?([^/]+)\.py$/.exec(file.name);
    const compiled = compileFile(file.name, await file.async('uint8array'));
    zip.file(`${folder ?? ''}__pycache__/${module}.${TAG}.pyc`, compiled, { unixPermissions: 0o644, createFolders: false });
  }
  for (const file of Object.values(zip.files)) file.date = DATE;
  const options = { type: 'nodebuffer', platform: 'UNIX', compression: 'DEFLATE', compressionOptions: { level: 9 } };
  await fs.writeFile(artifact, await zip.generateAsync(options));
}

class CompilePyc {
  constructor(serverless) {
    const compile = () => addCompiledFiles(serverless.service.package.artifact);
    this.hooks = {
      'after:package:createDeploymentArtifacts': compile,
      'after:deploy:function:packageFunction': compile,
    };
  }
}

module.exports = CompilePyc;
