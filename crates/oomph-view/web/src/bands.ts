// How much each group holds in each column of pixels: from the levels that the page was given where a column covers many
// events, from the blocks themselves where it covers few.

import { type Card, type Grouping, lower, upper } from "./data";

export interface Bands {
  width: number;
  groups: number;
  /** Bytes of group `g` in column `x` at `g * width + x`. */
  bytes: Float64Array;
  /** Reserved bytes at the moment that stands for each column. */
  reserved: Float64Array;
  /** The moment that stands for each column. */
  moments: Uint32Array;
}

/** Curves of groups at the moments of a card's levels. */
export interface Curves {
  of: ArrayLike<number>;
  groups: number;
  curves: Float64Array[];
  totals: Float64Array;
}

export function given(card: Card, grouping: Grouping): Curves {
  return finish(card, grouping.of, grouping.names.length, grouping.curves);
}

function finish(card: Card, of: ArrayLike<number>, groups: number, curves: Float64Array[]): Curves {
  const totals = new Float64Array(card.moments.length);
  for (const curve of curves) for (let at = 0; at < totals.length; at++) totals[at] += curve[at];
  return { of, groups, curves, totals };
}

/** The curves with what a search did not find in one group of its own, the last. */
export function found(card: Card, grouping: Grouping, mask: Uint8Array): Curves {
  const groups = grouping.names.length + 1;
  const of = new Uint8Array(card.count);
  for (let block = 0; block < card.count; block++) of[block] = mask[block] === 1 ? grouping.of[block] : groups - 1;
  const curves = Array.from({ length: groups }, () => new Float64Array(card.moments.length));
  const now = new Float64Array(groups);
  let born = 0;
  let dead = 0;
  for (let at = 0; at < card.moments.length; at++) {
    const moment = card.moments[at];
    for (; born < card.count && card.birth[born] <= moment; born++) now[of[born]] += card.requested(born);
    for (; dead < card.deaths.length && card.death[card.deaths[dead]] <= moment; dead++) {
      now[of[card.deaths[dead]]] -= card.requested(card.deaths[dead]);
    }
    for (let group = 0; group < groups; group++) curves[group][at] = now[group];
  }
  return finish(card, of, groups, curves);
}

/** The bands of positions `from` to `to` in `width` columns. */
export function bands(card: Card, curves: Curves, from: number, to: number, width: number): Bands {
  const { groups } = curves;
  const out: Bands = {
    width,
    groups,
    bytes: new Float64Array(groups * width),
    reserved: new Float64Array(width),
    moments: new Uint32Array(width),
  };
  const events = card.events + 1;
  const coarse = (to - from) / width >= events / Math.max(card.moments.length, 1);
  if (coarse || card.moments.length >= events) levels(card, curves, from, to, out);
  else exact(card, curves, from, to, out);
  let at = Math.max(upper(card.reservedAt, out.moments[0] ?? 0) - 1, 0);
  for (let x = 0; x < width; x++) {
    while (at + 1 < card.reservedAt.length && card.reservedAt[at + 1] <= out.moments[x]) at++;
    out.reserved[x] = card.reservedBytes[at] ?? 0;
  }
  return out;
}

function levels(card: Card, curves: Curves, from: number, to: number, out: Bands): void {
  const { moments } = card;
  const { totals } = curves;
  const { width, groups, bytes } = out;
  const last = moments.length - 1;
  for (let x = 0; x < width; x++) {
    const start = from + ((to - from) * x) / width;
    const end = from + ((to - from) * (x + 1)) / width;
    let best = Math.min(Math.max(upper(moments, start) - 1, 0), last);
    for (let at = lower(moments, start); at <= last && moments[at] < end; at++) {
      if (totals[at] > totals[best] || moments[best] < start) best = at;
    }
    out.moments[x] = moments[best] ?? 0;
    for (let group = 0; group < groups; group++) bytes[group * width + x] = curves.curves[group][best] ?? 0;
  }
}

function exact(card: Card, curves: Curves, from: number, to: number, out: Bands): void {
  const { of } = curves;
  const { width, groups, bytes } = out;
  const { birth, death, deaths } = card;
  const now = new Float64Array(groups);
  let total = 0;
  let position = Math.max(Math.floor(from), 0);
  let born = upper(birth, position);
  for (let block = 0; block < born; block++) {
    if (death[block] > position) {
      now[of[block]] += card.requested(block);
      total += card.requested(block);
    }
  }
  // The first block in the order of ends that ends after the first position.
  let low = 0;
  let high = deaths.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (death[deaths[middle]] <= position) low = middle + 1;
    else high = middle;
  }
  let dead = low;
  for (let x = 0; x < width; x++) {
    const end = Math.min(from + ((to - from) * (x + 1)) / width, card.events + 1);
    const keep = (): void => {
      out.moments[x] = position;
      for (let group = 0; group < groups; group++) bytes[group * width + x] = now[group];
    };
    let best = total;
    keep();
    while (position + 1 < end) {
      position++;
      for (; born < card.count && birth[born] <= position; born++) {
        now[of[born]] += card.requested(born);
        total += card.requested(born);
      }
      for (; dead < deaths.length && death[deaths[dead]] <= position; dead++) {
        now[of[deaths[dead]]] -= card.requested(deaths[dead]);
        total -= card.requested(deaths[dead]);
      }
      if (total > best) {
        best = total;
        keep();
      }
    }
  }
}
