// A headless Chromium, driven through its debugging pipe, so that no package is needed.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const PLACES = [process.env.OOMPH_CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

export function found() {
  return PLACES.find((place) => place && existsSync(place));
}

export class Browser {
  static async start() {
    const browser = new Browser();
    browser.folder = mkdtempSync(join(tmpdir(), "oomph-chromium-"));
    const options = [
      "--headless=new", "--no-sandbox", "--no-first-run", "--disable-dev-shm-usage", "--use-angle=swiftshader",
      "--enable-unsafe-swiftshader", "--hide-scrollbars", "--mute-audio", "--disable-background-networking",
      `--user-data-dir=${browser.folder}`, "--remote-debugging-pipe", "about:blank",
    ];
    browser.process = spawn(found(), options, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    browser.next = 1;
    browser.waiting = new Map();
    browser.listeners = [];
    let rest = Buffer.alloc(0);
    browser.process.stdio[4].on("data", (chunk) => {
      rest = Buffer.concat([rest, chunk]);
      for (let end = rest.indexOf(0); end >= 0; end = rest.indexOf(0)) {
        const message = JSON.parse(rest.subarray(0, end).toString());
        rest = rest.subarray(end + 1);
        const waiting = browser.waiting.get(message.id);
        browser.waiting.delete(message.id);
        if (waiting) message.error ? waiting.reject(new Error(message.error.message)) : waiting.resolve(message.result);
        else for (const listener of browser.listeners) listener(message);
      }
    });
    return browser;
  }

  send(method, params = {}, sessionId = undefined) {
    const id = this.next++;
    this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject }));
  }

  /** What the processes of the browser have used of all processors, in milliseconds; 0 where that is not known. */
  processorTime() {
    let parents;
    try {
      parents = readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map((name) => {
        const fields = readFileSync(`/proc/${name}/stat`, "latin1").split(") ").at(-1).split(" ");
        return { pid: Number(name), parent: Number(fields[1]), ticks: Number(fields[11]) + Number(fields[12]) };
      });
    } catch {
      return this.last ?? 0;
    }
    const ours = new Set([this.process.pid]);
    for (let grown = true; grown; ) {
      const before = ours.size;
      for (const { pid, parent } of parents) if (ours.has(parent)) ours.add(pid);
      grown = ours.size > before;
    }
    // A tick is a hundredth of a second.
    this.last = parents.filter(({ pid }) => ours.has(pid)).reduce((sum, { ticks }) => sum + ticks * 10, 0);
    return this.last;
  }

  async page(width, height, dark = false) {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    return new Page(this, sessionId, targetId, width, height, dark).begin();
  }

  async stop() {
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    await Promise.race([this.send("Browser.close").catch(() => {}), ended]);
    await ended;
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

export class Page {
  constructor(browser, session, target, width, height, dark) {
    Object.assign(this, { browser, session, target, width, height, dark });
    this.requests = [];
    this.problems = [];
  }

  async begin() {
    this.browser.listeners.push((message) => {
      if (message.sessionId !== this.session) return;
      const { method, params } = message;
      if (method === "Network.requestWillBeSent") this.requests.push(params.request.url);
      if (method === "Runtime.exceptionThrown") {
        this.problems.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text);
      }
      if (method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(params.type)) {
        this.problems.push(params.args.map((arg) => arg.value ?? arg.description).join(" "));
      }
      if (method === "Log.entryAdded" && params.entry.level === "error") this.problems.push(params.entry.text);
      this.onMessage?.(message);
    });
    await this.send("Page.enable");
    await this.send("Network.enable");
    await this.send("Runtime.enable");
    await this.send("Log.enable");
    await this.size(this.width, this.height);
    const scheme = this.dark ? "dark" : "light";
    await this.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
    return this;
  }

  size(width, height) {
    [this.width, this.height] = [width, height];
    return this.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
  }

  send(method, params = {}) {
    return this.browser.send(method, params, this.session);
  }

  /** Opens a file and waits until it can be used; how long that took in milliseconds, as the page counts. */
  async open(file, fragment = "", query = "", limit = 60_000) {
    const url = `${pathToFileURL(file).href}${query === "" ? "" : `?${query}`}${fragment === "" ? "" : `#${fragment}`}`;
    await this.send("Page.navigate", { url: "about:blank" });
    const start = performance.now();
    await this.send("Page.navigate", { url });
    await this.until("document.documentElement.dataset.ready === '1' || document.querySelector('.failed') !== null", limit);
    await this.settled();
    return performance.now() - start;
  }

  async evaluate(expression) {
    const answer = await this.send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
    if (answer.exceptionDetails) throw new Error(answer.exceptionDetails.exception?.description ?? answer.exceptionDetails.text);
    return answer.result.value;
  }

  async until(expression, limit = 10_000) {
    const end = performance.now() + limit;
    while (!(await this.evaluate(expression).catch(() => false))) {
      if (performance.now() > end) throw new Error(`not within ${limit} ms: ${expression}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Two frames later everything that was asked for is drawn. */
  settled() {
    return this.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))))");
  }

  /** The page as a PNG, in base64. */
  async pixels() {
    return (await this.send("Page.captureScreenshot", { format: "png" })).data;
  }

  async picture(path) {
    writeFileSync(path, Buffer.from(await this.pixels(), "base64"));
  }

  mouse(type, x, y, more = {}) {
    return this.send("Input.dispatchMouseEvent", { type, x, y, button: "none", ...more });
  }

  async click(x, y) {
    await this.mouse("mouseMoved", x, y);
    await this.mouse("mousePressed", x, y, { button: "left", buttons: 1, clickCount: 1 });
    await this.mouse("mouseReleased", x, y, { button: "left", clickCount: 1 });
    await this.settled();
  }

  async key(key) {
    const text = key.length === 1 ? { text: key } : {};
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", key, ...text });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", key });
    await this.settled();
  }

  async type(text) {
    for (const key of text) await this.key(key);
  }

  /** Where an element is: its middle and its size. */
  box(selector) {
    return this.evaluate(`(() => { const box = document.querySelector(${JSON.stringify(selector)}).getBoundingClientRect();
      return { x: box.left + box.width / 2, y: box.top + box.height / 2, left: box.left, top: box.top, width: box.width, height: box.height }; })()`);
  }
}
