// An osls plugin that adds compiled files to the zip, so that a cold start compiles nothing. It also adds the stage's
// `upstreams` as env/upstreams.json, because a function's variables may have only 4 KB in all, some dozen addresses.
// A .pyc belongs to one version of Python, the runtime's, and the machine that packages may have another. So the
// compiler is CPython 3.13 as WebAssembly (pyodide). The files are hash-based and unchecked: Lambda never compares
// them with the sources, whose times a zip does not keep. The sources stay, for tracebacks. The compiler takes some
// seconds to start, so its results are kept in .streamkeeper-build for the same files. It runs after
// serverless-python-requirements, which must come before it in the list of plugins.
'use strict';

const { createHash } = require('node:crypto');
const fs = require('node:fs/promises');
const path = require('node:path');
const JSZip = require('jszip');
const plugin = require('./plugin.cjs');

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
// Of every file: the same sources make the same zip, under any umask, and Lambda's user can read it.
const SAME = { date: new Date('1980-01-01T00:00:00Z'), unixPermissions: 0o100644 };

async function compiler() {
  const { loadPyodide } = await import('pyodide');
  const python = await loadPyodide();
  const tag = python.runPython('import sys; sys.implementation.cache_tag');
  if (tag !== TAG) throw new Error(`The compiler is ${tag}, but the runtime needs ${TAG}.`);
  const compileFile = python.runPython(COMPILER);
  return (name, source) => {
    try {
      const result = compileFile(name, source);
      const bytes = result.toJs();
      result.destroy();
      return bytes;
    } catch (error) {
      throw new Error(`${name} does not compile for the runtime: ${error.message.trim().split('\n').at(-1)}`);
    }
  };
}

// Returns the compiled files of the sources [path, bytes], in order: those kept in `folder`, or new ones.
async function compiled(sources, folder) {
  const key = createHash('sha256').update(`${require('pyodide/package.json').version} ${COMPILER}`);
  for (const [name, source] of sources) key.update(`\0${name}\0${source.length}\0`).update(source);
  const kept = path.join(folder, `compiled-${key.digest('hex')}.json`);
  const texts = await fs.readFile(kept, 'utf8').catch(() => null);
  if (texts !== null) return JSON.parse(texts).map((text) => Buffer.from(text, 'base64'));
  const compileFile = await compiler();
  const files = sources.map(([name, source]) => Buffer.from(compileFile(name, source)));
  await fs.mkdir(folder, { recursive: true });
  for (const name of await fs.readdir(folder)) {
    if (name.startsWith('compiled-')) await fs.rm(path.join(folder, name), { force: true });
  }
  // It is renamed at the end, so that a killed run leaves no half file under this name.
  const unfinished = path.join(folder, `compiled-unfinished-${process.pid}`);
  await fs.writeFile(unfinished, JSON.stringify(files.map((file) => file.toString('base64'))));
  await fs.rename(unfinished, kept);
  return files;
}

// Adds __pycache__/<module>.cpython-313.pyc for every <module>.py of the zip, which is kept in `folder`.
async function addCompiled(zip, folder) {
  const bytes = async (file) => [file.name, await file.async('uint8array')];
  const sources = await Promise.all(zip.file(/\.py$/).map(bytes));
  for (const [number, content] of (await compiled(sources, folder)).entries()) {
    const [, place, module] = /^(.*\/)?([^/]+)\.py$/.exec(sources[number][0]);
    zip.file(`${place ?? ''}__pycache__/${module}.${TAG}.pyc`, content, { createFolders: false });
  }
}

// Adds the compiled files and the addresses to the zip at `artifact`.
async function finishZip(artifact, folder, upstreams) {
  const zip = await JSZip.loadAsync(await fs.readFile(artifact));
  if (!process.env.STREAMKEEPER_TEMPLATE_ONLY) await addCompiled(zip, folder);
  zip.file('env/upstreams.json', JSON.stringify(upstreams), { createFolders: false });
  for (const file of Object.values(zip.files)) Object.assign(file, SAME);
  const options = { type: 'nodebuffer', platform: 'UNIX', compression: 'DEFLATE', compressionOptions: { level: 9 } };
  await fs.writeFile(artifact, await zip.generateAsync(options));
}

function finish({ service: { package: packaged, custom }, serviceDir }) {
  return finishZip(packaged.artifact, path.join(serviceDir, '.streamkeeper-build'), custom.upstreams);
}

module.exports = plugin({
  'after:package:createDeploymentArtifacts': finish,
  'after:deploy:function:packageFunction': finish,
});
