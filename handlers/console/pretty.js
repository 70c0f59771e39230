// Lays JSON out for people. Invariant: each number and text stays as it was written, because parsing and writing it may
// change it (17952311063000000001).

const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

// A line of a deeper text would begin with more spaces than it has characters.
const DEEPEST = 100;

/** The text of an object or a list, a member a line; null for any other text, and for one that is too deep. */
export function pretty(text) {
  try {
    if (typeof JSON.parse(text) !== 'object') return null;
  } catch {
    return null;
  }
  let written = '';
  let depth = 0;
  let before = '';
  const line = () => `\n${'  '.repeat(depth)}`;
  for (const [token] of text.matchAll(TOKENS)) {
    const isEnd = token === '}' || token === ']';
    if (isEnd) depth -= 1;
    const isFirst = before === '{' || before === '[';
    if (isEnd ? !isFirst : isFirst || before === ',') written += line();
    written += token === ':' ? ': ' : token;
    if (token === '{' || token === '[') depth += 1;
    if (depth > DEEPEST) return null;
    before = token;
  }
  return written;
}
