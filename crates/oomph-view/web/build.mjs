// Makes ../assets from src. `node build.mjs --check` writes nothing and fails where the files there differ.
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const check = process.argv.includes("--check");
const result = await build({
  absWorkingDir: here,
  entryPoints: { "view": "src/main.ts", "view.style": "src/view.css" },
  outdir: "out",
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome111", "firefox113", "safari16.4"],
  charset: "ascii",
  legalComments: "none",
  write: false,
});
let differ = 0;
for (const file of result.outputFiles) {
  const name = file.path.endsWith(".css") ? "view.css" : "view.js";
  const text = file.text.trimEnd();
  // The text stands in a script or a style element, which these would end.
  if (/<\/(script|style)|<!--/i.test(text)) throw new Error(`${name} holds markup that would end its element`);
  const path = join(here, "..", "assets", name);
  if (!check) {
    writeFileSync(path, text);
    console.log(`${name}: ${text.length} bytes`);
  } else if (readFileSync(path, "utf8") !== text) {
    console.error(`${name} is not what src makes; run \`npm run build\` in crates/oomph-view/web`);
    differ = 1;
  }
}
process.exitCode = differ;
