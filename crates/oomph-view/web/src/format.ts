// Numbers and names as people read them, and elements made without markup.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** A size with three digits and a unit. */
export function size(bytes: number): string {
  let value = Math.abs(bytes);
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  const digits = unit === 0 || value >= 1000 ? 0 : value >= 100 ? 1 : 2;
  return `${bytes < 0 ? "-" : ""}${value.toFixed(digits)} ${UNITS[unit]}`;
}

export function count(number: number): string {
  return Math.round(number).toLocaleString("en-US");
}

export function percent(part: number, whole: number): string {
  if (whole <= 0) return "";
  const share = (part * 100) / whole;
  return share > 0 && share < 0.1 ? "<0.1%" : `${share < 10 ? share.toFixed(1) : Math.round(share)}%`;
}

export function duration(microseconds: number): string {
  if (Number.isNaN(microseconds)) return "";
  const seconds = microseconds / 1e6;
  if (seconds < 1e-3) return `${microseconds.toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(seconds < 0.1 ? 2 : 1)} ms`;
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

/** Reads `1.5G`, `200 MiB`, `4096`; NaN where it is no size. */
export function parseSize(text: string): number {
  const match = /^([0-9]*\.?[0-9]+)\s*([kmgt]?)i?b?$/i.exec(text.trim());
  if (match === null) return NaN;
  return Number(match[1]) * 1024 ** " kmgt".indexOf(match[2].toLowerCase() || " ");
}

/** What a name from the recording looks like: characters that steer text are shown as their codes. */
export function visible(text: string): string {
  return text.replace(
    /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g,
    (character) => `\\u{${character.charCodeAt(0).toString(16)}}`,
  );
}

const OWNER_NAMES: Record<string, string> = {
  "optimizer-state": "optimizer state",
  "kv-cache": "KV cache",
  workspace: "library workspaces",
  "graph-pools": "CUDA graph pools",
  "slack-in-blocks": "slack inside blocks",
  "cached-split": "cached, pinned by blocks",
  "cached-unsplit": "cached, whole segments",
  context: "CUDA context",
  "other-processes": "other processes",
};

export function ownerName(owner: string): string {
  return OWNER_NAMES[owner] ?? owner;
}

type Child = Node | string | null | undefined | false;

/** An element with a class, children and nothing from markup. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className = "",
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className !== "") element.className = className;
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(typeof child === "string" ? visible(child) : child);
    }
  }
  return element;
}

/** The end of a text, which says most about a path or a module's name. */
export function ending(text: string, most: number): string {
  return text.length <= most ? text : `…${text.slice(text.length - most + 1)}`;
}
