// The document of a page, unpacked: columns of numbers as typed arrays.

export interface Column {
  at: number;
  count: number;
  delta: boolean;
}

export interface Line {
  file: string;
  line: number;
  function: string;
}

export interface Cause {
  cause: string;
  background: boolean;
  bytes: number;
  each_bytes: number | null;
  confidence: number;
  because: string;
  evidence: { what: string; bytes: number; site: Line | null }[];
}

export interface WhatIf {
  settings: string;
  as_recorded: boolean;
  card: string;
  capacity_bytes: number;
  survives: boolean;
  may_survive: boolean;
  peak_reserved_bytes: number;
  least_reserved_bytes: number;
  most_reserved_bytes: number;
  replays: number;
  replays_died: number;
  difference_bytes: number;
  retries: number;
  says: string;
}

export interface OwnerRow {
  owner: string;
  bytes: number;
  blocks: number;
  confidence: number;
  source: string;
}

export interface Explanation {
  index: number;
  verdict: { outcome: string; cause: string | null; happened: string; why: string; what_helps: string };
  peak: { at: string; event: number; allocated_bytes: number; reserved_bytes: number; active_bytes: number };
  peak_active_bytes: number;
  peak_reserved_bytes: number;
  oom: { requested_bytes: number; free_bytes: number; fatal: boolean; site: Line | null; phase: string } | null;
  beyond: { because: string } | null;
  card: { capacity_bytes: number; context_bytes: number; other_bytes: number; free_bytes: number } | null;
  owners: OwnerRow[];
  causes: Cause[];
  what_if: WhatIf[];
  smallest_card: { settings: string; allocator_bytes: number; capacity_bytes: number; card: string | null } | null;
  churn: { allocations: number; bytes: number };
  steps: number;
}

export interface Row {
  name: string;
  bytes: number | null;
  note: string;
  tone: string;
  code: string | null;
}

export interface Answer {
  headline: string;
  tone: string;
  lines: string[];
  sections: { title: string; lines: string[]; limit: number | null; rows: Row[] }[];
}

interface Levels {
  by: string;
  names: string[];
  of: Column | null;
  curves: Column[];
}

interface CardHeader {
  label: string;
  events: number;
  moment: number;
  failures: number[];
  fatal: number | null;
  explanation: Explanation;
  stacks: boolean;
  shapes: Column[];
  places: Column;
  blocks: Record<string, Column>;
  ranges: Record<string, Column>;
  islands: Column[];
  nodes: Column[];
  frames: Column[];
  modules: number[];
  names: number[];
  streams: string[];
  phases: Column[];
  steps: Column;
  times: Column[];
  moments: Column;
  groupings: Levels[];
}

export interface Document {
  version: number;
  title: string;
  oomph: string;
  private: boolean;
  /** Whether the first two cards are shown side by side. */
  compare: boolean;
  answer: Answer | null;
  notes: string[];
  cards: CardHeader[];
  strings: string[];
}

/** The bytes behind a document's header. */
export class Columns {
  constructor(private readonly bytes: Uint8Array) {}

  /** A column of whole numbers below 2^32. */
  whole(column: Column): Uint32Array {
    const { bytes } = this;
    const numbers = new Uint32Array(column.count);
    let at = column.at;
    let before = 0;
    for (let index = 0; index < column.count; index++) {
      let byte = bytes[at++];
      let number = byte & 0x7f;
      for (let scale = 128; byte >= 128; scale *= 128) {
        byte = bytes[at++];
        number += (byte & 0x7f) * scale;
      }
      if (column.delta) {
        number = before + (number % 2 === 0 ? number / 2 : -(number + 1) / 2);
        before = number;
      }
      numbers[index] = number;
    }
    return numbers;
  }

  /** A column of sizes and addresses. What needs more than 53 bits loses its lowest ones. */
  wide(column: Column): Float64Array {
    const { bytes } = this;
    const numbers = new Float64Array(column.count);
    let at = column.at;
    let before = 0;
    for (let index = 0; index < column.count; index++) {
      let byte = bytes[at++];
      let number = byte & 0x7f;
      for (let scale = 128; byte >= 128; scale *= 128) {
        byte = bytes[at++];
        number += (byte & 0x7f) * scale;
      }
      if (column.delta) {
        number = before + (number % 2 === 0 ? number / 2 : -(number + 1) / 2);
        before = number;
      }
      numbers[index] = number;
    }
    return numbers;
  }
}

/** The position of what never ends. */
export const NEVER = 0xffffffff;

export interface Grouping {
  by: string;
  names: string[];
  of: Uint32Array | Uint8Array;
  curves: Float64Array[];
}

export interface Range {
  from: number;
  to: number;
  offset: number;
  size: number;
  stream: number;
  large: boolean;
  expandable: boolean;
  pooled: boolean;
}

/** One card of one recording. */
export class Card {
  readonly label: string;
  readonly events: number;
  readonly moment: number;
  readonly failures: number[];
  readonly fatal: number | null;
  readonly explanation: Explanation;
  readonly hasStacks: boolean;
  readonly count: number;
  readonly birth: Uint32Array;
  readonly death: Uint32Array;
  readonly released: Uint32Array;
  readonly shape: Uint32Array;
  readonly place: Uint32Array;
  readonly stack: Uint32Array;
  readonly stream: Uint32Array;
  readonly owner: Uint32Array;
  readonly named: Uint32Array;
  readonly module: Uint32Array;
  readonly name: Uint32Array;
  readonly sizes: Float64Array;
  readonly slacks: Float64Array;
  readonly places: Float64Array;
  readonly ranges: Range[];
  readonly islands: { address: Float64Array; size: Float64Array; offset: Float64Array };
  readonly caller: Uint32Array;
  readonly frame: Uint32Array;
  readonly line: Uint32Array;
  readonly frames: { name: Uint32Array; file: Uint32Array; line: Uint32Array; worth: Uint32Array };
  readonly modules: string[];
  readonly names: string[];
  readonly streams: string[];
  readonly phaseStarts: Uint32Array;
  readonly phaseKinds: Uint32Array;
  readonly steps: Uint32Array;
  readonly timeAt: Uint32Array;
  readonly time: Float64Array;
  readonly moments: Uint32Array;
  readonly groupings: Grouping[];
  /** Blocks in the order of their ends, and the end of each; without those that are still there at the end. */
  readonly deaths: Uint32Array;
  /** Reserved bytes change at these positions. */
  readonly reservedAt: Uint32Array;
  readonly reservedBytes: Float64Array;
  readonly axis: number;
  /** The highest sum of what was requested, at the moments of the levels. */
  readonly mostRequested: number;

  constructor(header: CardHeader, columns: Columns, readonly strings: string[]) {
    this.label = header.label;
    this.events = header.events;
    this.moment = header.moment;
    this.failures = header.failures;
    this.fatal = header.fatal;
    this.explanation = header.explanation;
    this.hasStacks = header.stacks;
    const { blocks, ranges } = header;
    this.birth = columns.whole(blocks.birth);
    this.count = this.birth.length;
    const ends = (lives: Uint32Array): Uint32Array => {
      for (let index = 0; index < lives.length; index++) {
        lives[index] = lives[index] === 0 ? NEVER : this.birth[index] + lives[index] - 1;
      }
      return lives;
    };
    this.death = ends(columns.whole(blocks.life));
    this.released = ends(columns.whole(blocks.held));
    for (let index = 0; index < this.count; index++) {
      if (this.released[index] > this.death[index]) this.released[index] = this.death[index];
    }
    this.shape = columns.whole(blocks.shape);
    this.place = columns.whole(blocks.place);
    this.stack = columns.whole(blocks.stack);
    this.stream = columns.whole(blocks.stream);
    this.owner = columns.whole(blocks.owner);
    this.named = columns.whole(blocks.named);
    this.module = columns.whole(blocks.module);
    this.name = columns.whole(blocks.name);
    this.sizes = columns.wide(header.shapes[0]);
    this.slacks = columns.wide(header.shapes[1]);
    this.places = columns.wide(header.places);
    const from = columns.whole(ranges.from);
    const life = columns.whole(ranges.life);
    const offset = columns.wide(ranges.offset);
    const size = columns.wide(ranges.size);
    const stream = columns.whole(ranges.stream);
    const kind = columns.whole(ranges.kind);
    this.ranges = Array.from(from, (start, at) => ({
      from: start,
      to: life[at] === 0 ? NEVER : start + life[at] - 1,
      offset: offset[at],
      size: size[at],
      stream: stream[at],
      large: (kind[at] & 1) !== 0,
      expandable: (kind[at] & 2) !== 0,
      pooled: (kind[at] & 4) !== 0,
    }));
    const [address, extent, start] = header.islands.map((column) => columns.wide(column));
    this.islands = { address, size: extent, offset: start };
    this.axis = start.length === 0 ? 0 : start[start.length - 1] + extent[extent.length - 1];
    [this.caller, this.frame, this.line] = header.nodes.map((column) => columns.whole(column));
    const [name, file, line, worth] = header.frames.map((column) => columns.whole(column));
    this.frames = { name, file, line, worth };
    this.modules = header.modules.map((place) => strings[place]);
    this.names = header.names.map((place) => strings[place]);
    this.streams = header.streams;
    [this.phaseStarts, this.phaseKinds] = header.phases.map((column) => columns.whole(column));
    this.steps = columns.whole(header.steps);
    this.timeAt = columns.whole(header.times[0]);
    this.time = columns.wide(header.times[1]);
    this.moments = columns.whole(header.moments);
    this.groupings = header.groupings.map((levels) => ({
      by: levels.by,
      names: levels.names,
      of: levels.of === null ? this.owner : columns.whole(levels.of),
      curves: levels.curves.map((curve) => columns.wide(curve)),
    }));
    const owners = this.groupings[0]?.curves ?? [];
    this.mostRequested = this.moments.reduce((most, _, at) => Math.max(most, owners.reduce((sum, curve) => sum + curve[at], 0)), 0);
    this.deaths = this.inOrderOfDeath();
    [this.reservedAt, this.reservedBytes] = this.reserved();
  }

  /** The blocks by their ends: a counting sort, because positions are small numbers. */
  private inOrderOfDeath(): Uint32Array {
    const starts = new Uint32Array(this.events + 2);
    let dead = 0;
    for (let index = 0; index < this.count; index++) {
      if (this.death[index] <= this.events) {
        starts[this.death[index] + 1]++;
        dead++;
      }
    }
    for (let at = 1; at < starts.length; at++) starts[at] += starts[at - 1];
    const order = new Uint32Array(dead);
    for (let index = 0; index < this.count; index++) {
      if (this.death[index] <= this.events) order[starts[this.death[index]]++] = index;
    }
    return order;
  }

  private reserved(): [Uint32Array, Float64Array] {
    const changes = new Map<number, number>([[0, 0]]);
    for (const range of this.ranges) {
      changes.set(range.from, (changes.get(range.from) ?? 0) + range.size);
      if (range.to !== NEVER) changes.set(range.to, (changes.get(range.to) ?? 0) - range.size);
    }
    const rows = [...changes].sort((a, b) => a[0] - b[0]);
    let sum = 0;
    const totals = rows.map((row) => (sum += row[1]));
    return [Uint32Array.from(rows, (row) => row[0]), Float64Array.from(totals)];
  }

  size(block: number): number {
    return this.sizes[this.shape[block]];
  }

  slack(block: number): number {
    return this.slacks[this.shape[block]];
  }

  requested(block: number): number {
    return this.sizes[this.shape[block]] - this.slacks[this.shape[block]];
  }

  offset(block: number): number {
    return this.places[this.place[block]];
  }

  /** The address of a place on the axis. */
  address(offset: number): number {
    const at = upper(this.islands.offset, offset) - 1;
    return at < 0 ? offset : this.islands.address[at] + (offset - this.islands.offset[at]);
  }

  reservedAtPosition(position: number): number {
    const at = upper(this.reservedAt, position) - 1;
    return at < 0 ? 0 : this.reservedBytes[at];
  }

  /** Blocks that live at a position. */
  livingAt(position: number): number[] {
    const { birth, death } = this;
    const born = upper(birth, position);
    const living: number[] = [];
    for (let index = 0; index < born; index++) if (death[index] > position) living.push(index);
    return living;
  }

  phaseAt(position: number): string {
    if (position === 0) return PHASES[0];
    const at = lower(this.phaseStarts, position) - 1;
    return at < 0 ? PHASES[7] : PHASES[this.phaseKinds[at]];
  }

  /** The step in which a position lies, from 0. */
  stepAt(position: number): number {
    return lower(this.steps, position);
  }

  /** Microseconds since the first event; NaN without a clock. */
  timeOf(position: number): number {
    const { timeAt, time } = this;
    if (time.length < 2) return NaN;
    const after = Math.min(Math.max(upper(timeAt, position), 1), time.length - 1);
    const span = Math.max(timeAt[after] - timeAt[after - 1], 1);
    const share = Math.min(Math.max((position - timeAt[after - 1]) / span, 0), 1);
    return time[after - 1] + share * (time[after] - time[after - 1]);
  }

  frameText(frame: number): string {
    const { name, file, line } = this.frames;
    const at = line[frame] === 0 ? "" : `:${line[frame]}`;
    return `${this.strings[file[frame]]}${at} in ${this.strings[name[frame]]}`;
  }

  /** A frame with the last part of its path alone. */
  frameShort(frame: number): string {
    const { name, file, line } = this.frames;
    const path = this.strings[file[frame]];
    const base = path.slice(Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\")) + 1);
    const at = line[frame] === 0 ? "" : `:${line[frame]}`;
    return `${this.strings[name[frame]]}  ${base}${at}`;
  }

  lineText(block: number): string {
    const line = this.line[this.stack[block]];
    return line === 0 ? "" : this.frameText(line - 1);
  }

  /** The operation of autograd that a C++ stack names, such as `MmBackward0`; empty without one. */
  operation(block: number): string {
    for (let node = this.stack[block]; node !== 0; node = this.caller[node]) {
      if (this.frame[node] === 0) continue;
      const name = this.strings[this.frames.name[this.frame[node] - 1]];
      const found = /torch::autograd::(?:generated::)?(\w+)::(?:apply|accumulate)/.exec(name);
      if (found !== null && found[1] !== "Node" && found[1] !== "Engine") return found[1];
    }
    return "";
  }

  /** The frames of a block's stack, innermost first. */
  frameList(block: number): number[] {
    const frames: number[] = [];
    for (let node = this.stack[block]; node !== 0; node = this.caller[node]) {
      if (this.frame[node] !== 0) frames.push(this.frame[node] - 1);
    }
    return frames;
  }
}

export const OWNERS = [
  "parameters", "buffers", "optimizer-state", "gradients", "kv-cache", "activations", "inputs", "workspace",
  "graph-pools", "temporaries", "unattributed",
];

export const PHASES = [
  "before the recording", "load", "forward", "backward", "optimizer", "eval", "generate", "other",
];

/** The first index whose number is above `value`. */
export function upper(numbers: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = numbers.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (numbers[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The first index whose number is not below `value`. */
export function lower(numbers: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = numbers.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (numbers[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Unpacks the document of this page. */
export async function load(): Promise<{ document: Document; cards: Card[] }> {
  const holder = window.document.getElementById("data");
  const text = atob(holder?.textContent ?? "");
  holder?.remove();
  const packed = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) packed[at] = text.charCodeAt(at);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const document = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length))) as Document;
  const columns = new Columns(bytes.subarray(4 + length));
  return { document, cards: document.cards.map((header) => new Card(header, columns, document.strings)) };
}
