// What holds at the chosen moment: the blocks, the ranges, the sums. Worked out once for all views.

import { type Card, NEVER, OWNERS, type Range } from "./data";
import type { Search } from "./search";

export interface Segment extends Range {
  /** Indices of blocks by offset. */
  blocks: number[];
  free: number;
  largestGap: number;
  /** The block that keeps it from being given back, or -1. */
  pin: number;
}

export interface Moment {
  at: number;
  /** Live blocks, as far as the search finds them. */
  blocks: number[];
  /** All live blocks. */
  all: number[];
  requested: number;
  active: number;
  reserved: number;
  /** Requested bytes by owner. */
  owners: Float64Array;
  /** The same of what the search finds. */
  found: number;
  segments: Segment[];
}

export function moment(card: Card, at: number, search: Search): Moment {
  const all = card.livingAt(at);
  const { mask } = search;
  const owners = new Float64Array(OWNERS.length);
  let [requested, active, found] = [0, 0, 0];
  const blocks: number[] = [];
  for (const block of all) {
    owners[card.owner[block]] += card.requested(block);
    requested += card.requested(block);
    active += card.size(block);
    if (mask === null || mask[block] === 1) {
      blocks.push(block);
      found += card.requested(block);
    }
  }
  const segments = segmentsAt(card, at, all);
  // A block that lies in no segment stands for one of its own: some recordings have no segments.
  const within = segments.reduce((sum, segment) => sum + segment.size - segment.free, 0);
  const reserved = segments.reduce((sum, segment) => sum + segment.size, 0) + Math.max(active - within, 0);
  return { at, blocks, all, requested, active, reserved, owners, found, segments };
}

/** Mapped ranges of an expandable segment that touch are one. */
function segmentsAt(card: Card, at: number, all: number[]): Segment[] {
  const here = card.ranges.filter((range) => range.from <= at && at < range.to).sort((a, b) => a.offset - b.offset);
  const segments: Segment[] = [];
  for (const range of here) {
    const last = segments[segments.length - 1];
    const joins = last !== undefined && last.expandable && range.expandable && last.stream === range.stream &&
      last.pooled === range.pooled && last.offset + last.size === range.offset &&
      card.address(range.offset) === card.address(last.offset) + last.size;
    if (joins) last.size += range.size;
    else segments.push({ ...range, blocks: [], free: 0, largestGap: 0, pin: -1 });
  }
  const order = [...all].sort((a, b) => card.offset(a) - card.offset(b));
  let next = 0;
  for (const segment of segments) {
    const end = segment.offset + segment.size;
    while (next < order.length && card.offset(order[next]) < segment.offset) next++;
    let cursor = segment.offset;
    for (; next < order.length && card.offset(order[next]) < end; next++) {
      const block = order[next];
      const gap = Math.max(card.offset(block) - cursor, 0);
      segment.free += gap;
      segment.largestGap = Math.max(segment.largestGap, gap);
      segment.blocks.push(block);
      cursor = Math.max(cursor, card.offset(block) + card.size(block));
    }
    const gap = Math.max(end - cursor, 0);
    segment.free += gap;
    segment.largestGap = Math.max(segment.largestGap, gap);
    // The block that lives longest decides; of several that live on, the smallest shows the waste best.
    for (const block of segment.blocks) {
      const pin = segment.pin;
      if (
        pin < 0 || card.death[block] > card.death[pin] ||
        (card.death[block] === card.death[pin] && card.size(block) < card.size(pin))
      ) {
        segment.pin = block;
      }
    }
  }
  return segments;
}

/** Whether the program has given a block back that another stream may still use. */
export function waits(card: Card, block: number, at: number): boolean {
  return card.released[block] !== NEVER && card.released[block] <= at && card.death[block] > at;
}
