// Which blocks a search finds: words, and fields such as `size>100M`, `step:3`, `module:attn`.

import { type Card, NEVER, OWNERS, PHASES } from "./data";
import { parseSize } from "./format";

type Test = (block: number) => boolean;

/** A search that has been understood. */
export interface Search {
  /** One for each block that is found; null where nothing is searched for. */
  mask: Uint8Array | null;
  /** What is wrong with it, or empty. */
  problem: string;
  found: number;
}

const FIELDS = /^(owner|phase|module|line|file|name|step|stream|size|alive):?(<=|>=|<|>|=)?(.*)$/i;

/** Whether each row of a table of texts holds a word. */
function rows(texts: string[], word: string): Uint8Array {
  return Uint8Array.from(texts, (text) => (text.toLowerCase().includes(word) ? 1 : 0));
}

function frames(card: Card, word: string): Uint8Array {
  const found = new Uint8Array(card.frames.name.length);
  for (let frame = 0; frame < found.length; frame++) {
    found[frame] = card.frameText(frame).toLowerCase().includes(word) ? 1 : 0;
  }
  return found;
}

/** Whether a stack or any of its callers holds a frame that was found. */
function stacks(card: Card, found: Uint8Array): Uint8Array {
  const nodes = new Uint8Array(card.caller.length);
  for (let node = 1; node < nodes.length; node++) {
    const frame = card.frame[node];
    nodes[node] = nodes[card.caller[node]] | (frame === 0 ? 0 : found[frame - 1]);
  }
  return nodes;
}

function compare(sign: string, value: number): (number: number) => boolean {
  switch (sign) {
    case "<":
      return (number) => number < value;
    case "<=":
      return (number) => number <= value;
    case ">":
      return (number) => number > value;
    case ">=":
      return (number) => number >= value;
    default:
      return (number) => number === value;
  }
}

function field(card: Card, name: string, sign: string, value: string): Test | string {
  const word = value.toLowerCase();
  const number = Number(value);
  switch (name) {
    case "owner": {
      const found = rows(OWNERS, word.replace(/ /g, "-"));
      return (block) => found[card.owner[block]] === 1;
    }
    case "phase": {
      const found = rows(PHASES, word);
      return (block) => found[PHASES.indexOf(card.phaseAt(card.birth[block]))] === 1;
    }
    case "module": {
      const found = rows(card.modules, word);
      return (block) => card.module[block] > 0 && found[card.module[block] - 1] === 1;
    }
    case "name": {
      const found = rows(card.names, word);
      return (block) => card.name[block] > 0 && found[card.name[block] - 1] === 1;
    }
    case "line":
    case "file": {
      const found = frames(card, word);
      return (block) => {
        const line = card.line[card.stack[block]];
        return line > 0 && found[line - 1] === 1;
      };
    }
    case "stream": {
      const found = rows(card.streams, word);
      return (block) => found[card.stream[block]] === 1;
    }
    case "step": {
      if (value === "" || !Number.isFinite(number)) return "step: takes a number";
      const test = compare(sign, number);
      return (block) => card.birth[block] > 0 && test(card.stepAt(card.birth[block]) + 1);
    }
    case "alive": {
      if (value === "" || !Number.isFinite(number)) return "alive> takes a number of events";
      const test = compare(sign, number);
      return (block) => test(Math.min(card.death[block], card.events) - card.birth[block]);
    }
    default: {
      const bytes = parseSize(value);
      if (Number.isNaN(bytes)) return "size takes a size, such as size>100M";
      if (sign === "") return (block) => Math.abs(card.size(block) - bytes) <= bytes * 0.005;
      const test = compare(sign, bytes);
      return (block) => test(card.size(block));
    }
  }
}

function anywhere(card: Card, word: string): Test {
  const nodes = stacks(card, frames(card, word));
  const modules = rows(card.modules, word);
  const names = rows(card.names, word);
  const owners = rows(OWNERS, word);
  return (block) =>
    nodes[card.stack[block]] === 1 ||
    owners[card.owner[block]] === 1 ||
    (card.module[block] > 0 && modules[card.module[block] - 1] === 1) ||
    (card.name[block] > 0 && names[card.name[block] - 1] === 1);
}

/** Finds the blocks that all parts of a search agree on; a part that begins with `-` says what must not be. */
export function search(card: Card, query: string): Search {
  const parts = query.match(/-?(?:[a-z]+[:<>=]+)?(?:"[^"]*"|\S+)/gi) ?? [];
  const tests: Test[] = [];
  let problem = "";
  for (const part of parts) {
    const not = part.startsWith("-") && part.length > 1;
    const text = (not ? part.slice(1) : part).replace(/"/g, "");
    const match = FIELDS.exec(text);
    const isField = match !== null && (text[match[1].length] === ":" || (match[2] ?? "") !== "");
    const test = isField ? field(card, match[1].toLowerCase(), match[2] ?? "", match[3]) : anywhere(card, text.toLowerCase());
    if (typeof test === "string") problem = test;
    else tests.push(not ? (block) => !test(block) : test);
  }
  if (tests.length === 0) return { mask: null, problem, found: 0 };
  const mask = new Uint8Array(card.count);
  let found = 0;
  for (let block = 0; block < card.count; block++) {
    mask[block] = tests.every((test) => test(block)) ? 1 : 0;
    found += mask[block];
  }
  return { mask, problem, found };
}

/** How long a block lives, in words. */
export function life(card: Card, block: number): string {
  const born = card.birth[block] === 0 ? "before the recording" : `event ${card.birth[block].toLocaleString("en-US")}`;
  const death = card.death[block];
  return `${born} to ${death === NEVER ? "the end" : `event ${death.toLocaleString("en-US")}`}`;
}
