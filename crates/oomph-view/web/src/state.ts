// What is looked at: one place that every view reads, and the fragment of the address that keeps it.

import type { Card } from "./data";

export interface Place {
  /** Which card. */
  card: number;
  /** The chosen moment. */
  at: number;
  /** The shown part of the recording, as positions. */
  from: number;
  to: number;
  /** How the bands divide the blocks. */
  by: string;
  /** Which view is below the bands. */
  tab: string;
  /** How the flame graph is put together. */
  flame: string;
  /** The search. */
  query: string;
  /** The chosen block, or -1. */
  block: number;
  /** The card that is shown for comparison, or -1. */
  other: number;
}

export const TABS = ["flame", "space", "lives", "blocks"];

type Listener = (changed: Set<keyof Place>) => void;

export class State {
  place: Place;
  hover = -1;
  private readonly listeners: Listener[] = [];
  private changed = new Set<keyof Place>();
  private timer = 0;

  constructor(
    readonly cards: Card[],
    private readonly compare: boolean,
  ) {
    this.place = this.initial(0);
    this.read();
    window.addEventListener("hashchange", () => {
      if (window.location.hash.slice(1) === this.fragment()) return;
      this.read();
      for (const key of Object.keys(this.place)) this.changed.add(key as keyof Place);
      this.announce();
    });
  }

  get card(): Card {
    return this.cards[this.place.card];
  }

  initial(card: number): Place {
    const shown = this.cards[card];
    return {
      card,
      at: shown?.moment ?? 0,
      from: 0,
      to: Math.max(shown?.events ?? 1, 1),
      by: "owner",
      tab: "flame",
      flame: "stack",
      query: "",
      block: -1,
      other: this.compare && this.cards.length > 1 ? (card === 0 ? 1 : 0) : -1,
    };
  }

  listen(listener: Listener): void {
    this.listeners.push(listener);
  }

  set(change: Partial<Place>): void {
    const before = this.place;
    let next = { ...before, ...change };
    if (next.card !== before.card) {
      next = { ...this.initial(next.card), by: next.by, tab: next.tab, flame: next.flame, query: next.query };
    }
    this.place = this.within(next);
    for (const key of Object.keys(next) as (keyof Place)[]) {
      if (this.place[key] !== before[key]) this.changed.add(key);
    }
    if (this.changed.size > 0) this.announce();
  }

  private within(place: Place): Place {
    const card = this.cards[place.card];
    if (card === undefined) return place;
    const end = Math.max(card.events, 1);
    const least = Math.min(8, end);
    const span = Math.min(Math.max(place.to - place.from, least), end);
    place.from = Math.min(Math.max(place.from, 0), end - span);
    place.to = place.from + span;
    place.at = Math.min(Math.max(Math.round(place.at), 0), card.events);
    if (!card.groupings.some((grouping) => grouping.by === place.by)) place.by = "owner";
    if (!TABS.includes(place.tab)) place.tab = TABS[0];
    if (!(place.block < card.count)) place.block = -1;
    if (this.cards[place.other] === undefined || place.other === place.card) place.other = -1;
    return place;
  }

  private announce(): void {
    const changed = this.changed;
    this.changed = new Set();
    for (const listener of this.listeners) listener(changed);
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => this.write(), 250);
  }

  fragment(): string {
    const { place } = this;
    const usual = this.initial(place.card);
    const parts: string[] = [];
    if (place.card !== 0) parts.push(`card=${place.card}`);
    if (place.at !== usual.at) parts.push(`at=${place.at}`);
    if (place.from !== usual.from || place.to !== usual.to) {
      parts.push(`range=${Math.round(place.from)}-${Math.round(place.to)}`);
    }
    for (const key of ["by", "tab", "flame"] as const) {
      if (place[key] !== usual[key]) parts.push(`${key}=${place[key]}`);
    }
    if (place.query !== "") parts.push(`q=${encodeURIComponent(place.query)}`);
    if (place.block >= 0) parts.push(`block=${place.block}`);
    if (place.other !== usual.other) parts.push(`with=${place.other}`);
    return parts.join("&");
  }

  private write(): void {
    const fragment = this.fragment();
    if (window.location.hash.slice(1) === fragment) return;
    try {
      window.history.replaceState(null, "", `#${fragment}`);
    } catch {
      // Some browsers refuse this for files; the address then stays as it was.
    }
  }

  private read(): void {
    const fields = new URLSearchParams(window.location.hash.slice(1));
    const number = (name: string): number | undefined => {
      const value = Number(fields.get(name) ?? NaN);
      return Number.isFinite(value) ? value : undefined;
    };
    const card = number("card") ?? 0;
    const place = this.initial(this.cards[card] === undefined ? 0 : card);
    place.at = number("at") ?? place.at;
    const range = /^(\d+)-(\d+)$/.exec(fields.get("range") ?? "");
    if (range !== null && Number(range[2]) > Number(range[1])) {
      place.from = Number(range[1]);
      place.to = Number(range[2]);
    }
    place.by = fields.get("by") ?? place.by;
    place.tab = fields.get("tab") ?? place.tab;
    place.flame = fields.get("flame") === "module" ? "module" : place.flame;
    place.query = fields.get("q") ?? "";
    place.block = number("block") ?? -1;
    place.other = number("with") ?? place.other;
    this.place = this.within(place);
  }
}
