// Colours: the same group has the same one in every view, in the light and in the dark.

import { OWNERS } from "./data";

const OWNER_COLOURS: Record<string, string> = {
  parameters: "#3f72d8",
  buffers: "#7fa6ee",
  "optimizer-state": "#169a8a",
  gradients: "#e3a51c",
  "kv-cache": "#8657d1",
  activations: "#e0603c",
  inputs: "#66a83b",
  workspace: "#a06f4c",
  "graph-pools": "#cf5799",
  temporaries: "#f0a893",
  unattributed: "#8d919b",
  "slack-in-blocks": "#c3c7cf",
  "cached-split": "#b7bbc5",
  "cached-unsplit": "#ccd0d8",
  context: "#5f6470",
  "other-processes": "#474b55",
  free: "#e4e6ea",
};

const PHASE_COLOURS = ["#8d919b", "#3f72d8", "#4f9d3a", "#e0603c", "#169a8a", "#8657d1", "#cf5799", "#b1a58a"];

const OTHERS = [
  "#3f72d8", "#e0603c", "#169a8a", "#e3a51c", "#8657d1", "#66a83b", "#cf5799", "#a06f4c", "#35a3c9", "#c24848",
  "#6f7fb0", "#b1a58a", "#8d919b",
];

/** `#rrggbb` as 0xAABBGGRR. */
export function rgba(hex: string, alpha = 1): number {
  const value = Number.parseInt(hex.slice(1), 16);
  const [red, green, blue] = [value >> 16, (value >> 8) & 255, value & 255];
  return ((Math.round(alpha * 255) << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

export function ownerHex(owner: string): string {
  return OWNER_COLOURS[owner] ?? "#8d919b";
}

/** The colour of a group of a grouping. */
export function groupHex(by: string, group: number, groups: number): string {
  if (by === "owner") return ownerHex(OWNERS[group] ?? "unattributed");
  if (by === "phase") return PHASE_COLOURS[group] ?? "#8d919b";
  // The last two are "other" and "without".
  if (group >= groups - 2) return group === groups - 1 ? "#8d919b" : "#b4b8c0";
  return OTHERS[group % OTHERS.length];
}

export function phaseHex(kind: number): string {
  return PHASE_COLOURS[kind] ?? "#8d919b";
}

/** The colours of the page's own parts, read from its style. */
export interface Theme {
  dark: boolean;
  ground: number;
  text: string;
  faint: string;
  grid: string;
  accent: string;
  bad: string;
  cached: number;
  muted: number;
}

export function theme(): Theme {
  const style = getComputedStyle(document.documentElement);
  const get = (name: string): string => style.getPropertyValue(name).trim();
  return {
    dark: get("--dark") === "1",
    ground: rgba(get("--ground")),
    text: get("--text"),
    faint: get("--faint"),
    grid: get("--grid"),
    accent: get("--accent"),
    bad: get("--bad"),
    cached: rgba(get("--cached")),
    muted: rgba(get("--muted")),
  };
}
