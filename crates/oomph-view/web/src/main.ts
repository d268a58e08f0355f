// Puts the page together: the views, the keys, and what changes when something is chosen.

import { Blocks } from "./blocks";
import { frames, tooltip } from "./canvas";
import { type Card, type Document, load } from "./data";
import { Flame } from "./flame";
import { count, el } from "./format";
import { Lives } from "./lives";
import { type Moment, moment } from "./moment";
import { type Search, search } from "./search";
import { causes, chosen, difference, head, now, phaseLegend, sections } from "./side";
import { SpaceView } from "./space";
import { State, TABS } from "./state";
import { highest, Timeline, usable, zoom } from "./timeline";

const TAB_NAMES: Record<string, string> = {
  flame: "Flame graph",
  space: "Address space",
  lives: "Blocks over time",
  blocks: "Table",
};

const KEYS: [string, string][] = [
  ["drag, wheel", "move and zoom the time"],
  ["shift and drag", "zoom to a stretch"],
  ["click", "choose a moment, a block or a frame"],
  ["a d, w s", "move left and right, zoom in and out"],
  ["← →", "the moment one event back or on (with shift: one pixel)"],
  ["[ ]", "the step before, the step after"],
  ["p, e", "the moment of the answer (peak or death), the end"],
  ["0", "the whole recording"],
  ["g", "bands by owner, phase, module, line"],
  ["1 2 3 4", "flame graph, address space, blocks over time, table"],
  ["/", "search; Escape leaves it, and again clears it"],
  ["r", "the next card or rank"],
  ["t", "dark or light"],
  ["?", "these keys"],
];

class App {
  private readonly timeline: Timeline;
  private readonly below: Timeline;
  private readonly flame: Flame;
  private readonly space: SpaceView;
  private readonly lives: Lives;
  private readonly blocks: Blocks;
  private readonly side = el("aside", "");
  private readonly panel = el("div", "panel");
  private readonly panelBar = el("div", "panelbar");
  private readonly compared = el("div", "compared");
  private readonly legend = el("div", "under");
  private readonly query = el("input", "query");
  private readonly queryNote = el("span", "querynote");
  private readonly by = el("span", "segmented");
  private readonly tabs = el("span", "segmented tabs");
  private readonly help = this.helpBox();
  private readonly cardChoice = el("select", "");
  private readonly otherChoice = el("select", "");
  private moment: Moment;
  private found: Search;
  private timer = 0;

  constructor(
    private readonly doc: Document,
    private readonly state: State,
    root: HTMLElement,
  ) {
    this.found = search(state.card, state.place.query);
    this.moment = moment(state.card, state.place.at, this.found);
    const top = (): number => {
      const shown = [state.card, ...(state.place.other < 0 ? [] : [state.cards[state.place.other]])];
      return Math.max(...shown.map((card) => this.top(card)));
    };
    this.timeline = new Timeline(state, () => state.card, () => this.found, top, true);
    this.below = new Timeline(state, () => state.cards[Math.max(state.place.other, 0)], () => this.found, top, false);
    this.flame = new Flame(state, () => this.moment);
    this.space = new SpaceView(state, () => this.moment, () => this.found);
    this.lives = new Lives(state, () => this.found);
    this.blocks = new Blocks(state, () => this.moment);
    const views = el("div", "views", this.controls(), this.timeline.canvas.element, this.compared, this.legend, this.tabBar(), this.panel);
    root.replaceChildren(this.header(), el("div", "columns", views, this.side), this.help, tooltip.element);
    state.listen((changed) => this.changed(changed));
    window.addEventListener("keydown", (event) => this.key(event));
    this.changed(new Set(["card", "at", "query", "tab", "by", "block", "other"]));
  }

  /** The top of the picture: the card where it is near what was reserved, otherwise what was reserved. */
  private top(card: Card): number {
    const most = highest(card);
    const refused = card.fatal === null ? 0 : (card.explanation.oom?.requested_bytes ?? 0);
    const known = usable(card);
    const needed = Math.max(most, Math.min(card.reservedAtPosition(card.fatal ?? 0) + refused, most * 1.6));
    return Math.max(known !== null && known < needed * 2.2 ? Math.max(known, needed) : needed, 1) * 1.06;
  }

  private header(): HTMLElement {
    const title = el("h1", "", this.doc.title);
    const theme = el("button", "icon", "dark / light");
    theme.title = "dark or light (t)";
    theme.addEventListener("click", () => this.turn());
    const help = el("button", "icon", "keys");
    help.addEventListener("click", () => this.showHelp());
    this.state.cards.forEach((card, at) => {
      this.cardChoice.append(new Option(card.label, String(at)));
      this.otherChoice.append(new Option(card.label, String(at)));
    });
    this.otherChoice.prepend(new Option("compare with nothing", "-1"));
    this.cardChoice.setAttribute("aria-label", "card");
    this.otherChoice.setAttribute("aria-label", "compare with");
    this.cardChoice.addEventListener("change", () => this.state.set({ card: Number(this.cardChoice.value) }));
    this.otherChoice.addEventListener("change", () => this.state.set({ other: Number(this.otherChoice.value) }));
    const several = this.state.cards.length > 1;
    return el("header", "", el("span", "mark", "oomph"), title, several ? this.cardChoice : null, several ? this.otherChoice : null, el("span", "space"), theme, help);
  }

  private controls(): HTMLElement {
    for (const { by } of this.state.card.groupings) this.by.append(this.byButton(by));
    this.query.type = "search";
    this.query.placeholder = "search: attn  size>100M  step:2  owner:activations  line:train.py";
    this.query.setAttribute("aria-label", "search");
    this.query.spellcheck = false;
    this.query.addEventListener("input", () => {
      window.clearTimeout(this.timer);
      this.timer = window.setTimeout(() => this.state.set({ query: this.query.value.trim() }), 150);
    });
    const whole = el("button", "", "whole recording");
    whole.title = "the whole recording (0)";
    whole.addEventListener("click", () => this.whole());
    const peak = el("button", "", this.state.card.fatal === null ? "peak" : "death");
    peak.title = "the moment of the answer (p)";
    peak.addEventListener("click", () => this.answer());
    return el("div", "controls", el("span", "faint", "bands by"), this.by, el("span", "search", this.query, this.queryNote), whole, peak);
  }

  private byButton(by: string): HTMLElement {
    const button = el("button", "", by);
    button.dataset.by = by;
    button.addEventListener("click", () => this.state.set({ by }));
    return button;
  }

  private tabBar(): HTMLElement {
    TABS.forEach((tab, at) => {
      const button = el("button", "", TAB_NAMES[tab]);
      button.title = `${TAB_NAMES[tab]} (${at + 1})`;
      button.dataset.tab = tab;
      button.addEventListener("click", () => this.state.set({ tab }));
      this.tabs.append(button);
    });
    return el("div", "tabbar", this.tabs, this.panelBar);
  }

  private whole(): void {
    this.state.set({ from: 0, to: Math.max(this.state.card.events, 1) });
  }

  private answer(): void {
    const { card, place } = this.state;
    const at = card.moment;
    const span = place.to - place.from;
    const inside = at >= place.from && at <= place.to;
    this.state.set(inside ? { at } : { at, from: at - span / 2, to: at + span / 2 });
  }

  private changed(changed: Set<string>): void {
    const { state } = this;
    const { place, card } = state;
    const any = (...names: string[]): boolean => names.some((name) => changed.has(name));
    if (any("card", "query")) {
      this.found = search(card, place.query);
      if (document.activeElement !== this.query) this.query.value = place.query;
      this.queryNote.textContent = this.found.problem !== "" ? this.found.problem : this.found.mask === null ? "" : `${count(this.found.found)} blocks`;
      this.queryNote.classList.toggle("bad", this.found.problem !== "");
    }
    if (any("card")) {
      this.by.replaceChildren(...card.groupings.map(({ by }) => this.byButton(by)));
      this.cardChoice.value = String(place.card);
    }
    this.otherChoice.value = String(place.other);
    const moved = any("card", "at", "query");
    if (moved) this.moment = moment(card, place.at, this.found);
    for (const button of this.by.querySelectorAll("button")) button.classList.toggle("on", button.dataset.by === place.by);
    for (const button of this.tabs.querySelectorAll("button")) button.classList.toggle("on", button.dataset.tab === place.tab);
    if (any("card", "tab")) this.showTab();
    if (any("card", "other")) {
      const other = state.cards[place.other];
      this.compared.replaceChildren(...(other === undefined ? [] : [el("div", "faint", other.label), this.below.canvas.element]));
      this.timeline.canvas.redraw();
    }
    if (any("card", "at", "query", "tab", "by", "flame")) {
      if (place.tab === "flame") this.flame.rebuild();
      if (place.tab === "space") this.space.rebuild();
      if (place.tab === "blocks") this.blocks.rebuild();
    } else if (any("block") && place.tab === "blocks") {
      this.blocks.rebuild();
    }
    if (any("block") && place.tab === "space") this.space.canvas.redraw();
    if (place.tab === "lives") this.lives.canvas.redraw();
    this.timeline.canvas.redraw();
    if (place.other >= 0) this.below.canvas.redraw();
    if (any("card", "at", "query", "by", "block", "other")) this.sideNow();
  }

  private sideNow(): void {
    const { state, doc } = this;
    const { card, place } = state;
    const scrolled = this.side.scrollTop;
    const other = state.cards[place.other];
    this.side.replaceChildren(
      ...[
        head(doc, card),
        chosen(state),
        now(state, this.moment, this.found),
        other === undefined ? null : difference(card, other),
        ...causes(card),
        ...(doc.answer === null ? [] : sections(doc.answer)),
        ...notes(doc, card),
      ].filter((part): part is HTMLElement => part !== null),
    );
    this.side.scrollTop = scrolled;
    this.legend.replaceChildren(phaseLegend(card));
  }

  private showTab(): void {
    const { place } = this.state;
    const [bar, ...views] =
      place.tab === "space" ? [this.space.bar, this.space.canvas.element, this.space.list]
      : place.tab === "lives" ? [this.lives.bar, this.lives.canvas.element]
      : place.tab === "blocks" ? [this.blocks.bar, this.blocks.element]
      : [this.flame.bar, this.flame.canvas.element];
    this.panelBar.replaceChildren(bar);
    this.panel.replaceChildren(...views);
    this.panel.dataset.tab = place.tab;
  }

  private turn(): void {
    const root = document.documentElement;
    const dark = getComputedStyle(root).getPropertyValue("--dark").trim() === "1";
    root.dataset.theme = dark ? "light" : "dark";
    for (const view of [this.timeline, this.below, this.flame, this.space, this.lives]) view.canvas.redraw();
  }

  private helpBox(): HTMLDialogElement {
    const table = el("div", "keys");
    for (const [key, what] of KEYS) table.append(el("span", "strong", key), el("span", "", what));
    const fields = el("p", "faint", "A search is words, and fields: module: name: line: file: owner: phase: stream: step:2 size>100M alive>1000. A minus before a part leaves out what it finds.");
    return el("dialog", "help", el("h2", "", "Keys"), table, fields);
  }

  private showHelp(): void {
    if (this.help.open) this.help.close();
    else this.help.showModal();
  }

  private key(event: KeyboardEvent): void {
    const { state } = this;
    const { place, card } = state;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === this.query) {
      if (event.key === "Escape") {
        this.query.blur();
        event.preventDefault();
      }
      return;
    }
    if (event.target instanceof HTMLSelectElement || this.help.open) {
      if (event.key === "?" && this.help.open) this.help.close();
      return;
    }
    const span = place.to - place.from;
    const move = (share: number): void => state.set({ from: place.from + span * share, to: place.to + span * share });
    const share = Math.min(Math.max((place.at - place.from) / span, 0), 1);
    const step = event.shiftKey ? Math.max(Math.round(span / 1000), 1) : 1;
    const tab = TABS[Number(event.key) - 1];
    const actions: Record<string, () => void> = {
      a: () => move(-0.1),
      d: () => move(0.1),
      w: () => zoom(state, 0.75, share),
      s: () => zoom(state, 1 / 0.75, share),
      ArrowLeft: () => state.set({ at: place.at - step }),
      ArrowRight: () => state.set({ at: place.at + step }),
      "[": () => state.set({ at: [...card.steps].reverse().find((end) => end < place.at) ?? 0 }),
      "]": () => state.set({ at: card.steps.find((end) => end > place.at) ?? card.events }),
      p: () => this.answer(),
      o: () => this.answer(),
      e: () => state.set({ at: card.events }),
      "0": () => this.whole(),
      g: () => {
        const ways = card.groupings.map((grouping) => grouping.by);
        state.set({ by: ways[(ways.indexOf(place.by) + 1) % ways.length] });
      },
      r: () => state.set({ card: (place.card + 1) % state.cards.length }),
      t: () => this.turn(),
      "?": () => this.showHelp(),
      "/": () => this.query.focus(),
      Escape: () => state.set({ query: "", block: -1 }),
    };
    const action = tab === undefined ? actions[event.key] : () => state.set({ tab });
    if (action === undefined) return;
    event.preventDefault();
    action();
  }
}

/** What a picture lacks because the recording does. */
function lacks(card: Card): string[] {
  const missing: string[] = [];
  if (card.events === 0) {
    missing.push("The recording has no events, only the state at its end. torch.cuda.memory._record_memory_history() before the program's work records them.");
  } else if (!card.hasStacks) {
    missing.push("No stacks were recorded, so that lines and flame graphs are missing. torch.cuda.memory._record_memory_history() records them.");
  }
  if (card.ranges.length === 0) missing.push("The recording has no segments, so that reserved memory and gaps are not known.");
  return missing;
}

function notes(doc: Document, card: Card | undefined): HTMLElement[] {
  const private_ = doc.private ? ["Folders and lines of source were left out of this page."] : [];
  const all = [...(card === undefined ? [] : lacks(card)), ...doc.notes, ...private_];
  return all.length === 0 ? [] : [el("section", "", el("h2", "", "Notes"), ...all.map((note) => el("p", "faint", note)))];
}

async function start(): Promise<void> {
  const root = document.getElementById("app");
  if (root === null) return;
  try {
    const { document: doc, cards } = await load();
    if (cards.length > 0) {
      const state = new State(cards, doc.compare);
      new App(doc, state, root);
    } else {
      const title = el("header", "", el("span", "mark", "oomph"), el("h1", "", doc.title));
      const parts = [head(doc, undefined), ...(doc.answer === null ? [] : sections(doc.answer)), ...notes(doc, undefined)];
      root.replaceChildren(title, el("div", "alone", ...parts));
    }
    document.documentElement.dataset.ready = "1";
    // The tests ask how long it took and count pictures.
    Object.assign(window, { oomph: { frames, ready: performance.now() } });
  } catch (error) {
    root.replaceChildren(el("p", "failed", `The recording in this page cannot be shown: ${String(error)}. A browser of 2023 or later is needed.`));
  }
}

void start();
