// The live blocks of the chosen moment as a table, one by one or put together by line, module, tensor or size.

import { groupHex } from "./colours";
import { type Card, OWNERS } from "./data";
import { count, el, ending, ownerName, percent, size } from "./format";
import type { Moment } from "./moment";
import { describe } from "./space";
import { life } from "./search";
import type { State } from "./state";

/** Rows that are written; a search finds the others. */
const MOST = 300;

const WAYS = ["block", "line", "module", "size"];

export class Blocks {
  readonly element = el("div", "table");
  readonly bar: HTMLElement;
  private way = "line";
  private readonly buttons: HTMLButtonElement[];
  private readonly note = el("span", "faint");

  constructor(
    private readonly state: State,
    private readonly moment: () => Moment,
  ) {
    this.buttons = WAYS.map((way) => {
      const button = el("button", "", way === "block" ? "each block" : `by ${way}`);
      button.addEventListener("click", () => {
        this.way = way;
        this.rebuild();
      });
      return button;
    });
    this.bar = el("div", "bar", el("span", "segmented", ...this.buttons), this.note);
  }

  rebuild(): void {
    this.buttons.forEach((button, at) => button.classList.toggle("on", WAYS[at] === this.way));
    const { card } = this.state;
    const { blocks, requested } = this.moment();
    if (this.way === "block") this.each(card, blocks, requested);
    else this.grouped(card, blocks, requested);
  }

  private each(card: Card, blocks: number[], whole: number): void {
    const rows = [...blocks].sort((a, b) => card.requested(b) - card.requested(a));
    this.note.textContent = rows.length > MOST ? `the largest ${MOST} of ${count(rows.length)}; search to narrow them` : `${count(rows.length)} blocks`;
    const { place } = this.state;
    this.element.replaceChildren(
      ...rows.slice(0, MOST).map((block) => {
        const owner = OWNERS[card.owner[block]];
        const row = this.row(card.requested(block), whole, owner, ownerName(owner), describe(card, block), life(card, block));
        row.classList.toggle("on", block === place.block);
        row.addEventListener("click", () => this.state.set({ block }));
        return row;
      }),
    );
  }

  private grouped(card: Card, blocks: number[], whole: number): void {
    const sums = new Map<string, { bytes: number; blocks: number; owners: Float64Array; query: string }>();
    for (const block of blocks) {
      const [key, query] = this.key(card, block);
      let sum = sums.get(key);
      if (sum === undefined) sums.set(key, (sum = { bytes: 0, blocks: 0, owners: new Float64Array(OWNERS.length), query }));
      sum.bytes += card.requested(block);
      sum.blocks++;
      sum.owners[card.owner[block]] += card.requested(block);
    }
    const rows = [...sums].sort((a, b) => b[1].bytes - a[1].bytes);
    this.note.textContent = rows.length > MOST ? `the largest ${MOST} of ${count(rows.length)}` : `${count(rows.length)} rows; click one to search for it`;
    this.element.replaceChildren(
      ...rows.slice(0, MOST).map(([name, sum]) => {
        const owner = OWNERS[sum.owners.indexOf(Math.max(...sum.owners))];
        const row = this.row(sum.bytes, whole, owner, ownerName(owner), name, `${count(sum.blocks)} block${sum.blocks === 1 ? "" : "s"}`);
        row.addEventListener("click", () => {
          if (sum.query !== "") this.state.set({ query: sum.query });
        });
        return row;
      }),
    );
  }

  private key(card: Card, block: number): [string, string] {
    if (this.way === "size") {
      const bytes = card.size(block);
      return [size(bytes), `size>=${bytes} size<=${bytes}`];
    }
    if (this.way === "module") {
      const module = card.module[block] > 0 ? card.modules[card.module[block] - 1] : "";
      return module === "" ? ["outside of modules", ""] : [module, `module:"${module}"`];
    }
    const line = card.lineText(block);
    if (line !== "") return [line, `line:"${line}"`];
    const phase = card.phaseAt(card.birth[block]);
    const operation = card.operation(block);
    const where = phase.startsWith("before") ? "allocated before the recording" : `allocated in ${phase}`;
    return operation === "" ? [`${where}, without a line`, `phase:"${phase}"`] : [`${where} by ${operation}`, operation];
  }

  private row(bytes: number, whole: number, owner: string, name: string, what: string, note: string): HTMLButtonElement {
    const swatch = el("i", "swatch");
    swatch.style.background = groupHex("owner", OWNERS.indexOf(owner), OWNERS.length);
    const text = el("span", "code what", ending(what, 160));
    text.title = what;
    return el(
      "button",
      "block",
      el("span", "number", size(bytes)),
      el("span", "number faint", percent(bytes, whole)),
      el("span", "owner", swatch, name),
      text,
      el("span", "faint note", note),
    );
  }
}
