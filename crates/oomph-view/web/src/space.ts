// The address space at the chosen moment, written like lines of text: segments one after the other, blocks and gaps in them.

import { Canvas, tooltip } from "./canvas";
import { groupHex, rgba, type Theme } from "./colours";
import { type Card, OWNERS } from "./data";
import { count, el, ending, ownerName, size } from "./format";
import { type Moment, type Segment, waits } from "./moment";
import { life, type Search } from "./search";
import type { State } from "./state";

const GAP = 3;

interface Piece {
  segment: Segment;
  /** Where the row begins, in bytes of all segments one after the other. */
  start: number;
}

export class SpaceView {
  readonly canvas: Canvas;
  readonly bar = el("div", "bar");
  readonly list = el("div", "pins");
  private pieces: Piece[] = [];
  private total = 0;
  private rows = 1;
  private rowHeight = 16;
  private marked: Segment | null = null;

  constructor(
    private readonly state: State,
    private readonly moment: () => Moment,
    private readonly search: () => Search,
  ) {
    this.canvas = new Canvas("space", (theme) => this.draw(theme));
    const { element } = this.canvas;
    element.addEventListener("mousemove", (event) => this.hover(event));
    element.addEventListener("mouseleave", () => tooltip.hide());
    element.addEventListener("click", (event) => {
      const hit = this.at(event);
      if (hit !== null) state.set({ block: hit.block });
    });
  }

  rebuild(): void {
    const { segments } = this.moment();
    this.pieces = [];
    this.marked = null;
    let start = 0;
    for (const segment of segments) {
      this.pieces.push({ segment, start });
      start += segment.size;
    }
    this.total = start;
    this.summary(segments);
    this.canvas.redraw();
  }

  private summary(segments: Segment[]): void {
    const { card } = this.state;
    const pinned = segments.filter((segment) => segment.free > 0 && segment.blocks.length > 0);
    const whole = segments.filter((segment) => segment.blocks.length === 0);
    const sum = (rows: Segment[], of: (segment: Segment) => number): number => rows.reduce((total, row) => total + of(row), 0);
    const gap = segments.reduce((most, segment) => Math.max(most, segment.largestGap), 0);
    this.bar.replaceChildren(
      el("span", "", `${count(segments.length)} segments, ${size(this.total)} reserved`),
      el("span", "faint", `${size(sum(pinned, (row) => row.free))} free but pinned in ${count(pinned.length)}`),
      el("span", "faint", `${size(sum(whole, (row) => row.free))} in ${count(whole.length)} that are all free`),
      el("span", "faint", `largest gap ${size(gap)}`),
    );
    const rows = [...pinned].sort((a, b) => b.free - a.free).slice(0, 40);
    this.list.replaceChildren(
      el("h3", "", rows.length === 0 ? "Nothing is pinned" : "What pins free memory"),
      ...rows.map((segment) => {
        const row = el(
          "button",
          "pin",
          el("span", "strong", `${size(segment.free)} of ${size(segment.size)} free`),
          el("span", "faint", `largest gap ${size(segment.largestGap)}, ${count(segment.blocks.length)} live block${segment.blocks.length === 1 ? "" : "s"}`),
          el("span", "", `kept by ${size(card.size(segment.pin))} of ${ownerName(OWNERS[card.owner[segment.pin]])}`),
          el("span", "code", ending(describe(card, segment.pin), 80)),
        );
        row.addEventListener("click", () => {
          this.marked = segment;
          this.state.set({ block: segment.pin });
          this.canvas.redraw();
        });
        return row;
      }),
    );
  }

  private layout(): void {
    const height = this.canvas.height - 6;
    // As many rows as there is room for, unless there is little to show.
    this.rows = Math.min(Math.max(Math.floor(height / 18), 1), Math.max(this.pieces.length * 2, 4));
    this.rowHeight = height / this.rows;
  }

  private draw(theme: Theme): void {
    if (this.total === 0) {
      this.canvas.write((context) => {
        context.fillStyle = theme.faint;
        context.fillText("Nothing is reserved at this moment, or the recording has no segments.", 14, 24);
      });
      return;
    }
    this.layout();
    const { card, place } = this.state;
    const { mask } = this.search();
    const grouping = card.groupings.find((known) => known.by === place.by) ?? card.groupings[0];
    const names = grouping.names.length;
    for (const piece of this.pieces) {
      const { segment } = piece;
      this.fill(piece.start, segment.size, theme.cached);
      for (const block of segment.blocks) {
        const hidden = mask !== null && mask[block] === 0;
        const alpha = waits(card, block, place.at) ? 0.5 : 1;
        const colour = hidden ? theme.muted : rgba(groupHex(grouping.by, grouping.of[block], names), alpha);
        this.fill(piece.start + (card.offset(block) - segment.offset), card.size(block), colour);
      }
      this.edge(piece.start, theme);
    }
    if (this.marked !== null || place.block >= 0) this.canvas.write((context) => this.outline(context, theme));
  }

  /** Bytes from `start` on, over as many rows as they take. */
  private fill(start: number, bytes: number, colour: number): void {
    const perRow = this.total / this.rows;
    const wide = this.canvas.width - 2;
    let [at, left] = [start, bytes];
    while (left > 0) {
      const row = Math.min(Math.floor(at / perRow + 1e-9), this.rows - 1);
      const room = row === this.rows - 1 ? left : Math.min((row + 1) * perRow - at, left);
      if (room <= 0) break;
      const x = ((at - row * perRow) / perRow) * wide;
      this.canvas.rects.add(1 + x, 3 + row * this.rowHeight, (room / perRow) * wide, this.rowHeight - GAP, colour);
      at += room;
      left -= room;
    }
  }

  /** Where a segment begins. */
  private edge(start: number, theme: Theme): void {
    const perRow = this.total / this.rows;
    const row = Math.min(Math.floor(start / perRow + 1e-9), this.rows - 1);
    const x = ((start - row * perRow) / perRow) * (this.canvas.width - 2);
    const many = this.pieces.length > this.canvas.width * this.rows * 0.08;
    if (!many) this.canvas.rects.add(1 + x, 1 + row * this.rowHeight, 1.5, this.rowHeight, theme.ground);
  }

  private outline(context: CanvasRenderingContext2D, theme: Theme): void {
    const { card, place } = this.state;
    const perRow = this.total / this.rows;
    const wide = this.canvas.width - 2;
    const frame = (start: number, bytes: number, ink: string): void => {
      context.strokeStyle = ink;
      context.lineWidth = 2;
      let [at, left] = [start, bytes];
      while (left > 0) {
        const row = Math.min(Math.floor(at / perRow + 1e-9), this.rows - 1);
        const room = row === this.rows - 1 ? left : Math.min((row + 1) * perRow - at, left);
        if (room <= 0) break;
        const x = ((at - row * perRow) / perRow) * wide;
        context.strokeRect(1 + x, 2 + row * this.rowHeight, Math.max((room / perRow) * wide, 3), this.rowHeight - 1);
        at += room;
        left -= room;
      }
      context.lineWidth = 1;
    };
    for (const piece of this.pieces) {
      if (piece.segment === this.marked) frame(piece.start, piece.segment.size, theme.faint);
      if (place.block >= 0 && piece.segment.blocks.includes(place.block)) {
        frame(piece.start + card.offset(place.block) - piece.segment.offset, card.size(place.block), theme.text);
      }
    }
  }

  private at(event: MouseEvent): { segment: Segment; block: number; gap: number } | null {
    if (this.total === 0) return null;
    const { card } = this.state;
    const [x, y] = this.canvas.pointer(event);
    const row = Math.floor((y - 2) / this.rowHeight);
    if (row < 0 || row >= this.rows) return null;
    const perRow = this.total / this.rows;
    const bytes = (row + Math.min(Math.max((x - 1) / (this.canvas.width - 2), 0), 1)) * perRow;
    const piece = this.pieces.findLast((known) => known.start <= bytes);
    if (piece === undefined) return null;
    const offset = piece.segment.offset + bytes - piece.start;
    let end = piece.segment.offset;
    for (const block of piece.segment.blocks) {
      const start = card.offset(block);
      if (offset < start) return { segment: piece.segment, block: -1, gap: start - end };
      end = start + card.size(block);
      if (offset < end) return { segment: piece.segment, block, gap: 0 };
    }
    return { segment: piece.segment, block: -1, gap: piece.segment.offset + piece.segment.size - end };
  }

  private hover(event: MouseEvent): void {
    const hit = this.at(event);
    const { card } = this.state;
    if (hit === null) {
      tooltip.hide();
      return;
    }
    const { segment } = hit;
    const kind = [segment.expandable ? "expandable" : "", segment.pooled ? "private pool" : "", segment.large ? "large blocks" : "small blocks"];
    const about = el(
      "div",
      "faint",
      `segment of ${size(segment.size)} (${kind.filter((word) => word !== "").join(", ")}), ${size(segment.free)} free, stream ${card.streams[segment.stream]}`,
    );
    if (hit.block < 0) {
      tooltip.show(event, el("div", "strong", `free: ${size(hit.gap)}`), about);
      return;
    }
    tooltip.show(
      event,
      el("div", "strong", `${size(card.size(hit.block))} of ${ownerName(OWNERS[card.owner[hit.block]])}`),
      describe(card, hit.block),
      el("div", "faint", life(card, hit.block)),
      about,
    );
  }
}

/** What is known of a block, in one line. */
export function describe(card: Card, block: number): string {
  const name = card.name[block] > 0 ? card.names[card.name[block] - 1] : "";
  const module = card.module[block] > 0 ? card.modules[card.module[block] - 1] : "";
  const line = card.lineText(block);
  const parts = [name !== "" ? name : module, line].filter((part) => part !== "");
  if (parts.length > 0) return parts.join("  ");
  const phase = card.phaseAt(card.birth[block]);
  const operation = card.operation(block);
  if (card.birth[block] === 0) return "allocated before the recording";
  return operation === "" ? `allocated in ${phase}, without a stack` : `allocated in ${phase} by ${operation}`;
}
