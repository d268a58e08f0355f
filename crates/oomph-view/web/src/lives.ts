// Every block as one rectangle: from its birth to its end, at its address. Fragmentation can be seen to grow here.

import { Canvas, tooltip } from "./canvas";
import { groupHex, rgba, type Theme } from "./colours";
import { css } from "./paint";
import { type Card, lower, OWNERS, upper } from "./data";
import { count, el, ownerName, size } from "./format";
import { Drag } from "./pointer";
import { life, type Search } from "./search";
import { describe } from "./space";
import type { State } from "./state";
import { zoom } from "./timeline";

const LEFT = 64;
const RIGHT = 10;

/** The least that a rectangle measures, in pixels. */
const THIN = 0.6;

/** Blocks that live about equally long, in the order of birth. */
interface Class {
  /** The longest life among them, in events. */
  longest: number;
  blocks: Uint32Array;
  births: Uint32Array;
}

export class Lives {
  readonly canvas: Canvas;
  readonly bar = el("div", "bar");
  private classes: Class[] = [];
  private of: Card | null = null;
  /** The shown part of the axis. */
  private low = 0;
  private high = 1;
  private readonly note = el("span", "faint");

  constructor(
    private readonly state: State,
    private readonly search: () => Search,
  ) {
    this.canvas = new Canvas("lives", (theme) => this.draw(theme));
    const whole = el("button", "", "all addresses");
    whole.addEventListener("click", () => {
      [this.low, this.high] = [0, this.state.card.axis];
      this.canvas.redraw();
    });
    this.bar.append(el("span", "faint", "Ctrl and wheel zoom the addresses"), whole, this.note);
    this.listen();
  }

  rebuild(): void {
    const { card } = this.state;
    if (this.of === card) return;
    this.of = card;
    [this.low, this.high] = [0, Math.max(card.axis, 1)];
    const rows = new Map<number, number[]>();
    for (let block = 0; block < card.count; block++) {
      const events = Math.min(card.death[block], card.events + 1) - card.birth[block];
      const kind = 31 - Math.clz32(Math.max(events, 1));
      let row = rows.get(kind);
      if (row === undefined) rows.set(kind, (row = []));
      row.push(block);
    }
    this.classes = [...rows].sort((a, b) => b[0] - a[0]).map(([kind, row]) => {
      const blocks = Uint32Array.from(row);
      return { longest: 2 ** (kind + 1), blocks, births: Uint32Array.from(blocks, (block) => card.birth[block]) };
    });
  }

  private get width(): number {
    return Math.max(this.canvas.width - LEFT - RIGHT, 16);
  }

  private draw(theme: Theme): void {
    this.rebuild();
    const { card, place } = this.state;
    const { mask } = this.search();
    const { from, to } = place;
    const { width } = this;
    const height = this.canvas.height - 8;
    const perPixel = (to - from) / width;
    const tall = height / (this.high - this.low);
    const grouping = card.groupings.find((known) => known.by === place.by) ?? card.groupings[0];
    const colours = grouping.names.map((_, group) => rgba(groupHex(grouping.by, group, grouping.names.length)));
    const { rects } = this.canvas;
    const lastIn = new Int32Array(Math.ceil(this.canvas.height) + 1);
    const rectangle = (birth: number, death: number, offset: number, bytes: number, colour: number): void => {
      const x0 = Math.max(((birth - from) / (to - from)) * width, 0);
      const x1 = Math.min(((Math.min(death, card.events + 1) - from) / (to - from)) * width, width);
      const y1 = Math.min(4 + height - (offset - this.low) * tall, 4 + height);
      const y0 = Math.max(4 + height - (offset + bytes - this.low) * tall, 4);
      if (!(x1 > x0 && y1 > y0)) return;
      if (y1 - y0 > THIN) {
        rects.add(LEFT + x0, y0, Math.max(x1 - x0, THIN), y1 - y0, colour);
        return;
      }
      // Thin blocks in one line of pixels that touch are one rectangle: there can be tens of thousands.
      const line = Math.floor(y0);
      const last = lastIn[line];
      const end = LEFT + Math.max(x1, x0 + THIN);
      if (last >= 0 && rects.colours[last] === colour && LEFT + x0 <= rects.data[last * 4] + rects.data[last * 4 + 2] + 0.5) {
        rects.data[last * 4 + 2] = Math.max(rects.data[last * 4 + 2], end - rects.data[last * 4]);
        [rects.data[last * 4 + 1], rects.data[last * 4 + 3]] = [line, 1];
        return;
      }
      lastIn[line] = rects.count;
      rects.add(LEFT + x0, y0, end - LEFT - x0, THIN, colour);
    };
    lastIn.fill(-1);
    for (const range of card.ranges) {
      if (range.to > from && range.from < to) rectangle(range.from, range.to, range.offset, range.size, theme.cached);
    }
    let left = 0;
    for (const { longest, blocks, births } of this.classes) {
      const first = lower(births, Math.max(Math.floor(from) - longest, 0));
      const last = upper(births, to);
      if (longest < perPixel) {
        left += last - first;
        continue;
      }
      // Within a class blocks come in the order of their births; those of another class lie above or below.
      lastIn.fill(-1);
      for (let at = first; at < last; at++) {
        const block = blocks[at];
        const bytes = card.size(block);
        // A block that is thin but lives long can still be seen, and what leaks is often like that.
        const long = (Math.min(card.death[block], to) - Math.max(card.birth[block], from)) / perPixel;
        if (bytes * tall * Math.max(long, 1) < 0.2 && block !== place.block) {
          left++;
          continue;
        }
        const hidden = mask !== null && mask[block] === 0;
        rectangle(card.birth[block], card.death[block], card.offset(block), bytes, hidden ? theme.muted : colours[grouping.of[block]]);
      }
    }
    this.note.textContent = left === 0 ? "" : `${count(left)} blocks are too small to see`;
    this.canvas.write((context) => this.lines(context, theme, tall, height));
  }

  private lines(context: CanvasRenderingContext2D, theme: Theme, tall: number, height: number): void {
    const { card, place } = this.state;
    context.strokeStyle = css(theme.ground);
    context.textAlign = "right";
    // Lines between segments that lie closer than this would cover what is in them.
    const dense = (card.axis * tall) / Math.max(card.islands.offset.length, 1) < 12;
    for (let at = 0; at < card.islands.offset.length && !dense; at++) {
      const y = Math.round(4 + height - (card.islands.offset[at] - this.low) * tall) + 0.5;
      if (y < 4 || y > 4 + height) continue;
      context.beginPath();
      context.moveTo(LEFT, y);
      context.lineTo(LEFT + this.width, y);
      context.stroke();
    }
    context.fillStyle = theme.faint;
    const ticks = Math.max(Math.floor(height / 60), 1);
    for (let tick = 0; tick <= ticks; tick++) {
      const bytes = this.low + ((this.high - this.low) * tick) / ticks;
      const y = Math.min(Math.max(4 + height - (bytes - this.low) * tall, 9), height);
      context.fillText(size(bytes), LEFT - 7, y);
    }
    context.textAlign = "left";
    const x = LEFT + ((place.at - place.from) / (place.to - place.from)) * this.width;
    if (x >= LEFT && x <= LEFT + this.width) {
      context.strokeStyle = theme.accent;
      context.beginPath();
      context.moveTo(Math.round(x) + 0.5, 0);
      context.lineTo(Math.round(x) + 0.5, this.canvas.height);
      context.stroke();
    }
    if (place.block >= 0) {
      const { block } = place;
      const pixel = (position: number): number => LEFT + ((position - place.from) / (place.to - place.from)) * this.width;
      const x0 = Math.max(pixel(card.birth[block]), LEFT);
      const x1 = Math.min(pixel(Math.min(card.death[block], card.events + 1)), LEFT + this.width);
      const y1 = 4 + height - (card.offset(block) - this.low) * tall;
      const y0 = y1 - card.size(block) * tall;
      context.strokeStyle = theme.text;
      context.lineWidth = 2;
      if (x1 > LEFT && x0 < LEFT + this.width) context.strokeRect(x0, y0 - 1, Math.max(x1 - x0, 3), Math.max(y1 - y0, 2) + 1);
      context.lineWidth = 1;
    }
  }

  private listen(): void {
    const { element } = this.canvas;
    const { state } = this;
    new Drag(element, {
      start: (event) => {
        const [x, y] = this.canvas.pointer(event);
        return { x, y, from: state.place.from, to: state.place.to, low: this.low, high: this.high };
      },
      move: (event, start) => {
        const [x, y] = this.canvas.pointer(event);
        const moved = ((start.x - x) / this.width) * (start.to - start.from);
        const span = start.high - start.low;
        const low = start.low + ((y - start.y) / this.canvas.height) * span;
        this.low = Math.min(Math.max(low, 0), Math.max(state.card.axis - span, 0));
        this.high = this.low + span;
        state.set({ from: start.from + moved, to: start.to + moved });
        this.canvas.redraw();
      },
      end: (event, _, moved) => {
        if (moved) return;
        const hit = this.at(event);
        const [x] = this.canvas.pointer(event);
        const { from, to } = state.place;
        const at = Math.floor(from + ((x - LEFT) / this.width) * (to - from));
        state.set(hit >= 0 ? { block: hit, at } : { at });
      },
    });
    element.addEventListener("wheel", (event) => {
      event.preventDefault();
      const [x, y] = this.canvas.pointer(event);
      if (!event.ctrlKey) {
        zoom(state, 1.0016 ** event.deltaY, Math.min(Math.max((x - LEFT) / this.width, 0), 1));
        return;
      }
      const share = 1 - Math.min(Math.max((y - 4) / (this.canvas.height - 8), 0), 1);
      const fixed = this.low + (this.high - this.low) * share;
      const span = Math.min(Math.max((this.high - this.low) * 1.0016 ** event.deltaY, 4096), Math.max(state.card.axis, 1));
      this.low = Math.min(Math.max(fixed - span * share, 0), Math.max(state.card.axis - span, 0));
      this.high = this.low + span;
      this.canvas.redraw();
    }, { passive: false });
    element.addEventListener("mousemove", (event) => {
      if (event.buttons !== 0) return;
      const hit = this.at(event);
      const { card } = state;
      if (hit < 0) {
        tooltip.hide();
        return;
      }
      tooltip.show(
        event,
        el("div", "strong", `${size(card.size(hit))} of ${ownerName(OWNERS[card.owner[hit]])}`),
        describe(card, hit),
        el("div", "faint", life(card, hit)),
      );
    });
    element.addEventListener("mouseleave", () => tooltip.hide());
  }

  /** The block below the pointer: of those that lie there the shortest-lived one, which is drawn last. */
  private at(event: MouseEvent): number {
    const { card, place } = this.state;
    const [x, y] = this.canvas.pointer(event);
    const height = this.canvas.height - 8;
    if (x < LEFT || x > LEFT + this.width) return -1;
    const position = Math.floor(place.from + ((x - LEFT) / this.width) * (place.to - place.from));
    const offset = this.low + ((4 + height - y) / height) * (this.high - this.low);
    const perPixel = (place.to - place.from) / this.width;
    for (let at = this.classes.length - 1; at >= 0; at--) {
      const { longest, blocks, births } = this.classes[at];
      if (longest < perPixel) continue;
      const first = lower(births, Math.max(position - longest, 0));
      for (let index = upper(births, position) - 1; index >= first; index--) {
        const block = blocks[index];
        if (card.death[block] <= position) continue;
        if (card.offset(block) <= offset && offset < card.offset(block) + card.size(block)) return block;
      }
    }
    return -1;
  }
}
