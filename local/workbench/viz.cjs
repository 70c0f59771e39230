// Draws DOT from standard input as SVG on standard output, with Graphviz compiled to WebAssembly (@viz-js/viz).
const { readFileSync } = require("fs");
const { instance } = require("@viz-js/viz");

instance().then((viz) => {
  const { status, output, errors } = viz.render(readFileSync(0, "utf8"), { format: "svg" });
  for (const { level, message } of errors) if (level !== "warning") process.stderr.write(message + "\n");
  process.stdout.write(output ?? "");
  process.exitCode = status === "success" ? 0 : 1;
});
