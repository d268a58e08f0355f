// Tries pages in a real browser: node browser.mjs LARGE SMALL FLAT [PICTURED PICTURES]. Prints what it measured as JSON; fails with a
// sentence for each thing that does not hold. OOMPH_STRICT_TIMES=1 holds the page to its times, which a busy machine
// cannot keep.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { Browser } from "./chromium.mjs";

const [large, small, flat, pictured, pictures] = process.argv.slice(2);
const strict = process.env.OOMPH_STRICT_TIMES === "1";
const failures = [];
const check = (holds, what) => {
  if (!holds) failures.push(what);
};
const measured = {};
const browser = await Browser.start();
try {
  const page = await browser.page(1440, 900);
  const text = (selector) => page.evaluate(`document.querySelector(${JSON.stringify(selector)})?.textContent ?? ""`);
  const hash = async () => {
    // The page writes its address once nothing has changed for a while.
    await new Promise((done) => setTimeout(done, strict ? 350 : 1000));
    return decodeURIComponent(await page.evaluate("location.hash"));
  };

  // The first page of a browser that has just started pays for the browser's own start.
  await page.open(small);
  await page.open(large);
  measured.ready_ms = Math.round(await page.evaluate("oomph.ready"));
  check(measured.ready_ms < (strict ? 2000 : 30_000), `the large page took ${measured.ready_ms} ms`);
  measured.painter = await page.evaluate("document.querySelector('.timeline').dataset.painter");
  check(measured.painter === "canvas", `a machine without a card draws by ${measured.painter}, which takes several times as long`);

  // Moving: frames that were drawn while the pointer drags, first over the bands, then with all blocks below them.
  const drag = async (selector) => {
    const box = await page.box(selector);
    const [left, right] = [box.left + box.width * 0.25, box.left + box.width * 0.75];
    await page.mouse("mouseMoved", left, box.y);
    await page.mouse("mousePressed", left, box.y, { button: "left", buttons: 1, clickCount: 1 });
    const before = await page.evaluate("oomph.frames.drawn");
    const [start, worked] = [performance.now(), browser.processorTime()];
    const pictures = selector === ".lives" ? 2 : 1;
    for (let move = 0; performance.now() - start < 3000; move++) {
      const share = Math.abs(((move / 60) % 2) - 1);
      await page.mouse("mouseMoved", left + (right - left) * share, box.y, { buttons: 1 });
    }
    const drawn = (await page.evaluate("oomph.frames.drawn")) - before;
    const seconds = (performance.now() - start) / 1000;
    await page.mouse("mouseReleased", left, box.y, { button: "left", clickCount: 1 });
    const moved = Math.max(drawn / pictures, 1);
    const spent = browser.processorTime() - worked;
    return [moved / seconds, spent / moved].map((number) => Math.round(number * 10) / 10);
  };
  for (let times = 0; times < 4; times++) await page.key("w");
  // What a frame takes of all processors together: two free ones have 66 ms for each of 30 frames a second.
  [measured.pan_frames_per_second, measured.pan_processor_ms_per_frame] = await drag(".timeline");
  await page.key("3");
  [measured.pan_all_blocks_frames_per_second, measured.pan_all_blocks_processor_ms_per_frame] = await drag(".lives");
  for (const what of ["pan", "pan_all_blocks"]) {
    const [frames, spent] = [measured[`${what}_frames_per_second`], measured[`${what}_processor_ms_per_frame`]];
    check(!strict || frames >= 30, `${what}: ${frames} frames a second, ${spent} ms of processors each`);
    // A busy machine shows fewer frames, but each costs the same.
    check(spent < 132, `${what}: a frame takes ${spent} ms of processors`);
  }
  await page.key("0");
  await page.key("1");

  // Search.
  await page.key("/");
  await page.type("owner:activations size>1M");
  await page.until("/ blocks$/.test(document.querySelector('.querynote').textContent)");
  check(/found by the search/.test(await text("aside")), "the side does not say what the search found");
  check(/q=owner:activations size>1M/.test(await hash()), "the search is not in the address");
  await page.key("Escape");
  await page.key("Escape");
  check((await text(".querynote")) === "", "Escape does not clear the search");
  await page.key("/");
  await page.type("size>wrong");
  await page.until("document.querySelector('.querynote.bad') !== null");
  await page.key("Escape");
  await page.key("Escape");

  // Selection: a moment, a block, a frame.
  const bands = await page.box(".timeline");
  await page.click(bands.left + bands.width * 0.6, bands.y);
  check(/at=\d+/.test(await hash()), "a click does not choose a moment");
  await page.key("4");
  await page.evaluate("[...document.querySelectorAll('.panelbar button')].find((button) => button.textContent === 'each block').click()");
  await page.settled();
  const row = await page.box(".block");
  await page.click(row.left + 40, row.y);
  check(/The chosen block/.test(await text("aside")), "a click on a row does not choose its block");
  check(/block=\d+/.test(await hash()), "the block is not in the address");
  await page.key("2");
  check(/segments, .* reserved/.test(await text(".panelbar")), "the address space says nothing of its segments");
  await page.key("1");
  const flame = await page.box(".flame");
  await page.click(flame.left + 60, flame.top + 30);
  check(/whole graph/.test(await text(".crumbs")), "a click on a frame does not look into it");
  await page.key("Escape");

  // Keys.
  for (const [key, expected] of [["g", /by=phase/], ["2", /tab=space/], ["e", /at=\d+/], ["w", /range=\d+-\d+/], ["0", /^(?!.*range)/], ["p", /^(?!.*at=)/]]) {
    await page.key(key);
    check(expected.test(await hash()), `the key ${key} leads to ${await hash()}`);
  }
  const dark = () => page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--dark').trim()");
  const before = await dark();
  await page.key("t");
  check((await dark()) !== before, "the key t does not turn the light");
  await page.key("?");
  check(await page.evaluate("document.querySelector('dialog').open"), "the key ? does not show the keys");
  await page.key("Escape");

  // The link to a place.
  const events = await page.evaluate("Number(/of ([0-9,]+)/.exec(document.querySelector('aside').textContent)[1].replace(/,/g, ''))");
  const at = Math.floor(events / 3);
  await page.open(large, `at=${at}&range=${at - 1000}-${at + 1000}&by=line&tab=blocks&q=step%3E1`);
  check((await text("aside")).includes(`event ${at.toLocaleString("en-US")} of`), "the link does not lead to its moment");
  check((await text(".tabs .on")) === "Table", "the link does not lead to its view");
  check((await page.evaluate("document.querySelector('.query').value")) === "step>1", "the link has no search");
  check((await hash()).includes(`range=${at - 1000}-${at + 1000}`), "the link loses its range");

  // Names that try to be markup, and the plain canvas.
  await page.open(small);
  check((await page.evaluate("document.querySelectorAll('img, iframe, object, a').length")) === 0, "a name became markup");
  check(!(await page.evaluate("'stolen' in window")), "a name became a script");
  const refused = await page.evaluate("fetch('https://example.com/').then(() => false, () => true)");
  check(refused, "the policy lets a request out");
  page.problems.length = 0;
  page.requests.length = 0;
  await page.open(`${large}`, "tab=space");
  for (const key of ["3", "4", "1"]) await page.key(key);
  const outside = page.requests.filter((url) => !url.startsWith("file:") && url !== "about:blank");
  check(outside.length === 0, `requests left the page: ${outside.join(", ")}`);
  check(page.problems.length === 0, `the console says: ${page.problems.join("; ")}`);

  // A recording without segments: the bands are scaled by what was in use, and end below the top.
  await page.open(flat);
  const filled = await page.evaluate(`(() => {
    const canvas = document.querySelector(".timeline canvas");
    const { data } = canvas.getContext("2d").getImageData(Math.round(canvas.width * 0.8), 0, 1, canvas.height);
    let rows = 0;
    for (let at = 0; at < data.length; at += 4) if (Math.min(data[at], data[at + 1], data[at + 2]) < 200) rows++;
    return rows / canvas.height;
  })()`);
  measured.filled = Math.round(filled * 100) / 100;
  check(filled > 0.3 && filled < 0.85, `bands without segments fill ${filled} of the height`);

  // Both painters draw the same picture.
  const drawn = {};
  for (const painter of ["canvas", "webgl"]) {
    await page.open(large, "tab=lives", painter);
    drawn[painter] = await page.pixels();
    const kind = await page.evaluate("document.querySelector('.timeline').dataset.painter");
    check(kind.startsWith(painter), `${painter} was asked for, ${kind} draws`);
  }
  await page.send("Page.navigate", { url: "about:blank" });
  measured.painters_differ_percent = await page.evaluate(`(async () => {
    const [a, b] = await Promise.all(${JSON.stringify(Object.values(drawn))}.map(async (data) => {
      const bitmap = await createImageBitmap(await (await fetch("data:image/png;base64," + data)).blob());
      const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
      context.drawImage(bitmap, 0, 0);
      return context.getImageData(0, 0, bitmap.width, bitmap.height).data;
    }));
    let differ = 0;
    for (let at = 0; at < a.length; at += 4) {
      if (Math.max(...[0, 1, 2].map((part) => Math.abs(a[at + part] - b[at + part]))) > 48) differ++;
    }
    return Math.round((differ / (a.length / 4)) * 1000) / 10;
  })()`);
  check(measured.painters_differ_percent < 5, `the two painters differ in ${measured.painters_differ_percent} % of the page`);

  if (pictures !== undefined) {
    mkdirSync(pictures, { recursive: true });
    for (const [width, height, scheme] of [[1440, 900, "light"], [760, 1250, "dark"]]) {
      const shown = await browser.page(width, height, scheme === "dark");
      for (const tab of ["flame", "space", "lives", "blocks"]) {
        await shown.open(pictured, `tab=${tab}`);
        await shown.picture(join(pictures, `${tab}-${width}.png`));
      }
      await shown.open(pictured, "tab=flame");
      await shown.size(width, 2600);
      await shown.settled();
      await shown.picture(join(pictures, `whole-${width}.png`));
    }
  }
} catch (error) {
  failures.push(String(error?.stack ?? error));
} finally {
  await browser.stop();
}
console.log(JSON.stringify(measured));
for (const failure of failures) console.error(failure);
process.exitCode = failures.length === 0 ? 0 : 1;
