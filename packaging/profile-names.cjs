// Resolves ${file(packaging/profile-names.cjs)}: the names of the profiles in env/streams, as a regular expression.
// By it API Gateway knows which streams exist; the zip of the same deployment has the files.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

module.exports = () =>
  fs
    .readdirSync(path.join(__dirname, '..', 'env', 'streams'))
    .filter((name) => /^[A-Za-z0-9._-]+\.toml$/.test(name))
    .map((name) => name.slice(0, -'.toml'.length).replaceAll('.', '[.]'))
    .sort()
    .join('|');
