// What the blocks of the chosen moment add up to, by stack or by module.

import { Canvas, tooltip } from "./canvas";
import { groupHex, rgba, type Theme } from "./colours";
import { type Card, OWNERS } from "./data";
import { count, el, ownerName, percent, size, visible } from "./format";
import type { Moment } from "./moment";
import type { State } from "./state";

const ROW = 19;

interface Node {
  name: string;
  /** The whole text for the box next to the pointer. */
  full: string;
  bytes: number;
  blocks: number;
  children: Node[];
  index: Map<string, Node>;
  parent: Node | null;
  /** Bytes by group of the bands. */
  groups: Float64Array;
}

interface Box {
  node: Node;
  x: number;
  y: number;
  width: number;
  /** Whether the box is one that was looked into. */
  faint: boolean;
}

function node(name: string, full: string, parent: Node | null, groups: number): Node {
  return { name, full, bytes: 0, blocks: 0, children: [], index: new Map(), parent, groups: new Float64Array(groups) };
}

export class Flame {
  readonly canvas: Canvas;
  readonly bar: HTMLElement;
  private root: Node | null = null;
  private focus: Node | null = null;
  private focusPath: string[] = [];
  private boxes: Box[] = [];
  private native = false;
  private readonly crumbs = el("span", "crumbs");
  private readonly buttons: HTMLButtonElement[] = [];

  constructor(
    private readonly state: State,
    private readonly moment: () => Moment,
  ) {
    this.canvas = new Canvas("flame", (theme) => this.draw(theme));
    for (const [key, text] of [["stack", "by stack"], ["module", "by module"]]) {
      const button = el("button", "", text);
      button.addEventListener("click", () => state.set({ flame: key }));
      button.dataset.key = key;
      this.buttons.push(button);
    }
    const native = el("button", "", "library frames");
    native.title = "show the frames of libraries and of C++ as well";
    native.addEventListener("click", () => {
      this.native = !this.native;
      native.classList.toggle("on", this.native);
      this.rebuild();
    });
    this.bar = el("div", "bar", el("span", "segmented", ...this.buttons), native, this.crumbs);
    const { element } = this.canvas;
    element.addEventListener("mousemove", (event) => this.hover(event));
    element.addEventListener("mouseleave", () => tooltip.hide());
    element.addEventListener("click", (event) => {
      const hit = this.at(event);
      this.setFocus(hit === null || hit === this.focus ? (hit?.parent ?? null) : hit);
    });
  }

  rebuild(): void {
    this.root = this.state.place.flame === "module" ? this.byModule() : this.byStack();
    sort(this.root);
    // The same place in the new graph, as far as that has it.
    let focus = this.root;
    for (const name of this.focusPath) {
      const next = focus.index.get(name);
      if (next === undefined) break;
      focus = next;
    }
    this.setFocus(focus);
    for (const button of this.buttons) button.classList.toggle("on", button.dataset.key === this.state.place.flame);
  }

  private grouping(): { of: ArrayLike<number>; names: string[]; by: string } {
    const { card, place } = this.state;
    return card.groupings.find((grouping) => grouping.by === place.by) ?? card.groupings[0];
  }

  private add(root: Node, path: { key: string; name: string; full: string }[], block: number): void {
    const card = this.state.card;
    const { of, names } = this.grouping();
    const bytes = card.requested(block);
    let at = root;
    const count = (node: Node): void => {
      node.bytes += bytes;
      node.blocks++;
      node.groups[of[block]] += bytes;
    };
    count(root);
    for (const part of path) {
      let next = at.index.get(part.key);
      if (next === undefined) {
        next = node(part.name, part.full, at, names.length);
        at.index.set(part.key, next);
        at.children.push(next);
      }
      count(next);
      at = next;
    }
  }

  private byStack(): Node {
    const { card } = this.state;
    const root = node("all live memory", "all live memory", null, this.grouping().names.length);
    const paths = new Map<number, { key: string; name: string; full: string }[]>();
    for (const block of this.moment().blocks) {
      const stack = card.stack[block];
      let path = paths.get(stack);
      if (path === undefined) {
        path = [];
        const frames = card.frameList(block).reverse();
        const python = frames.some((frame) => card.frames.worth[frame] > 0);
        for (const frame of frames) {
          const worth = card.frames.worth[frame];
          if (!this.native && (!python || worth < 2)) continue;
          path.push({ key: `f${frame}`, name: card.frameShort(frame), full: card.frameText(frame) });
        }
        // A long way through libraries says little: the program's own frames, and the innermost one.
        if (!this.native) path = this.shortened(path, card, frames);
        paths.set(stack, path);
      }
      if (path.length > 0) this.add(root, path, block);
      else this.add(root, this.without(card, block), block);
    }
    return root;
  }

  private shortened(
    path: { key: string; name: string; full: string }[],
    card: Card,
    frames: number[],
  ): { key: string; name: string; full: string }[] {
    const own = frames.some((frame) => card.frames.worth[frame] === 3);
    if (!own) return path;
    return path.filter((part, at) => card.frames.worth[Number(part.key.slice(1))] === 3 || at === path.length - 1);
  }

  private without(card: Card, block: number): { key: string; name: string; full: string }[] {
    const phase = card.phaseAt(card.birth[block]);
    const why = phase === "backward" ? "autograd, without a Python stack" : "no stack was recorded";
    const first = { key: `p${phase}`, name: `${phase} (${why})`, full: `${phase}: ${why}` };
    const operation = card.operation(block);
    return operation === "" ? [first] : [first, { key: `o${operation}`, name: operation, full: operation }];
  }

  private byModule(): Node {
    const { card } = this.state;
    const root = node("all live memory", "all live memory", null, this.grouping().names.length);
    for (const block of this.moment().blocks) {
      const module = card.module[block];
      const path: { key: string; name: string; full: string }[] = [];
      if (module === 0) {
        path.push({ key: "-", name: "outside of modules", full: "outside of modules" });
      } else {
        const parts = card.modules[module - 1].split(".");
        parts.forEach((part, at) => path.push({ key: part, name: part, full: parts.slice(0, at + 1).join(".") }));
      }
      const owner = OWNERS[card.owner[block]];
      path.push({ key: `=${owner}`, name: ownerName(owner), full: ownerName(owner) });
      this.add(root, path, block);
    }
    return root;
  }

  private setFocus(focus: Node | null): void {
    this.focus = focus ?? this.root;
    const way: Node[] = [];
    for (let at = this.focus; at !== null; at = at.parent) way.unshift(at);
    this.focusPath = way.slice(1).map((at) => [...(at.parent?.index.entries() ?? [])].find((row) => row[1] === at)?.[0] ?? "");
    this.crumbs.replaceChildren();
    if (way.length > 1) {
      const back = el("button", "", "whole graph");
      back.addEventListener("click", () => this.setFocus(this.root));
      this.crumbs.append(back);
    }
    this.canvas.redraw();
  }

  private draw(theme: Theme): void {
    const { focus } = this;
    this.boxes = [];
    if (focus === null || this.root === null) return;
    if (this.root.bytes === 0) {
      const text = this.state.place.query === "" ? "Nothing is live at this moment." : "The search finds nothing that is live at this moment.";
      this.canvas.write((context) => {
        context.fillStyle = theme.faint;
        context.fillText(text, 14, 24);
      });
      return;
    }
    const way: Node[] = [];
    for (let at: Node | null = focus; at !== null; at = at.parent) way.unshift(at);
    const width = this.canvas.width - 2;
    way.forEach((at, depth) => this.box(at, 1, depth, width, depth < way.length - 1));
    this.below(focus, 1, way.length, width);
    this.canvas.write((context) => {
      for (const box of this.boxes) name(context, theme, box);
    });
  }

  private below(parent: Node, x: number, depth: number, width: number): void {
    if (depth * ROW > this.canvas.height) return;
    let left = x;
    for (const child of parent.children) {
      const wide = (child.bytes / parent.bytes) * width;
      if (wide < 0.7) break;
      this.box(child, left, depth, wide, false);
      this.below(child, left, depth + 1, wide);
      left += wide;
    }
  }

  private box(at: Node, x: number, depth: number, width: number, faint: boolean): void {
    const y = depth * ROW + 1;
    this.boxes.push({ node: at, x, y, width, faint });
    const { by, names } = this.grouping();
    // The parts of a box show whose bytes they are.
    let left = x;
    const wide = Math.max(width - 1, 0.5);
    at.groups.forEach((bytes, group) => {
      if (bytes <= 0) return;
      const part = (bytes / at.bytes) * wide;
      this.canvas.rects.add(left, y, part, ROW - 1, rgba(groupHex(by, group, names.length), faint ? 0.35 : 0.82));
      left += part;
    });
  }

  private at(event: MouseEvent): Node | null {
    const [x, y] = this.canvas.pointer(event);
    const hit = this.boxes.find((box) => x >= box.x && x < box.x + box.width && y >= box.y && y < box.y + ROW);
    return hit?.node ?? null;
  }

  private hover(event: MouseEvent): void {
    const hit = this.at(event);
    if (hit === null || this.root === null) {
      tooltip.hide();
      return;
    }
    const { by, names } = this.grouping();
    const parts = [...hit.groups].map((bytes, group) => ({ bytes, group })).filter((part) => part.bytes > 0);
    parts.sort((a, b) => b.bytes - a.bytes);
    const rows = parts.slice(0, 4).map((part) => {
      const swatch = el("i", "swatch");
      swatch.style.background = groupHex(by, part.group, names.length);
      return el("div", "", swatch, `${ownerName(names[part.group])} ${size(part.bytes)}`);
    });
    tooltip.show(
      event,
      el("div", "strong", hit.full),
      `${size(hit.bytes)} (${percent(hit.bytes, this.root.bytes)}) in ${count(hit.blocks)} block${hit.blocks === 1 ? "" : "s"}`,
      ...rows,
    );
  }
}

/** Writes into a box what it is and how large. */
function name(context: CanvasRenderingContext2D, theme: Theme, { node, x, y, width, faint }: Box): void {
  if (width < 34) return;
  const text = visible(node.name);
  const note = ` ${size(node.bytes)}`;
  context.save();
  context.beginPath();
  context.rect(x, y, width - 3, ROW - 1);
  context.clip();
  context.fillStyle = faint ? theme.text : "#fff";
  if (!faint) {
    context.shadowColor = "rgba(0,0,0,0.55)";
    context.shadowBlur = 2;
  }
  context.fillText(text, x + 5, y + ROW / 2);
  const used = context.measureText(text).width;
  if (used + context.measureText(note).width + 14 < width) {
    context.globalAlpha = 0.8;
    context.fillText(note, x + 5 + used + 4, y + ROW / 2);
  }
  context.restore();
}

function sort(at: Node): void {
  at.children.sort((a, b) => b.bytes - a.bytes);
  for (const child of at.children) sort(child);
}

