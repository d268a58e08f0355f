// Next to the pictures: the answer, the chosen moment, the chosen block, the causes and what would have helped.

import { groupHex, ownerHex, phaseHex } from "./colours";
import { type Answer, type Card, type Cause, type Document, type Line, OWNERS, PHASES, type WhatIf } from "./data";
import { count, duration, el, ownerName, percent, size } from "./format";
import type { Moment } from "./moment";
import { describe } from "./space";
import { life, type Search } from "./search";
import type { State } from "./state";

/** Frames of a stack that are written at once. */
const MOST_FRAMES = 60;

function site(line: Line | null): string {
  return line === null ? "" : `${line.file}:${line.line} in ${line.function}`;
}

function sentence(text: string): string {
  // A setting's name stays as it is written.
  const word = /^[a-z]+[ ,]/.test(text);
  return text === "" ? "" : `${word ? `${text[0].toUpperCase()}${text.slice(1)}` : text}.`;
}

function section(title: string, ...children: (Node | string | null | false)[]): HTMLElement {
  return el("section", "", el("h2", "", title), ...children);
}

function bar(bytes: number, most: number, colour: string, share = 0): HTMLElement {
  const fill = el("i", "fill");
  fill.style.width = `${Math.min((bytes / Math.max(most, 1)) * 100, 100)}%`;
  fill.style.background = colour;
  const out = el("span", "meter", fill);
  if (share > 0) {
    const mark = el("i", "limit");
    mark.style.left = `${Math.min(share * 100, 100)}%`;
    out.append(mark);
  }
  return out;
}

/** The answer of the command, and of each card; it does not change with the moment. */
export function head(doc: Document, card: Card | undefined): HTMLElement {
  const out = el("div", "head");
  const { answer } = doc;
  if (answer !== null) {
    out.append(el("p", `headline ${answer.tone}`, answer.headline.slice(0, 1).toUpperCase() + answer.headline.slice(1)), ...answer.lines.map((line) => el("p", "", sentence(line))));
  }
  if (card === undefined) return out;
  const { verdict, beyond } = card.explanation;
  const word = verdict.outcome === "oom" ? "Out of memory" : verdict.outcome === "fits" ? "Fits" : "No out-of-memory error";
  if (answer === null) {
    out.append(el("p", `headline ${verdict.outcome === "oom" ? "bad" : "good"}`, `${word} on cuda:${card.explanation.index}`));
  }
  out.append(el("p", "strong", sentence(verdict.happened)));
  for (const text of [verdict.why, verdict.what_helps, beyond?.because ?? ""]) {
    if (text !== "") out.append(el("p", "", sentence(text)));
  }
  return out;
}

/** What is there at the chosen moment, as the legend of the pictures too. */
export function now(state: State, moment: Moment, search: Search): HTMLElement {
  const { card, place } = state;
  const time = card.timeOf(moment.at);
  const steps = card.steps.length > 0 && moment.at > 0 ? `step ${card.stepAt(moment.at) + 1}, ` : "";
  const name = moment.at === card.fatal ? "When it died" : moment.at === card.moment && card.explanation.peak.at === "peak" ? "At the peak" : "At this moment";
  const out = section(
    name,
    el("p", "faint", `event ${count(moment.at)} of ${count(card.events)}, ${steps}${card.phaseAt(moment.at)}${Number.isNaN(time) ? "" : `, ${duration(time)}`}`),
  );
  const grouping = card.groupings.find((known) => known.by === place.by) ?? card.groupings[0];
  const sums = new Float64Array(grouping.names.length);
  for (const block of moment.all) sums[grouping.of[block]] += card.requested(block);
  const rows = [...sums].map((bytes, group) => ({
    name: ownerName(grouping.names[group]),
    key: grouping.names[group],
    bytes,
    colour: groupHex(grouping.by, group, grouping.names.length),
  }));
  const ordered = rows.filter((row) => row.bytes > 0).sort((a, b) => b.bytes - a.bytes);
  ordered.push({ name: "slack inside blocks", key: "", bytes: moment.active - moment.requested, colour: ownerHex("slack-in-blocks") });
  ordered.push({ name: "cached", key: "", bytes: moment.reserved - moment.active, colour: ownerHex("cached-split") });
  const most = Math.max(moment.reserved, 1);
  const legend = el("div", "legend");
  for (const row of ordered.filter((known) => known.bytes > 0)) {
    const swatch = el("i", "swatch");
    swatch.style.background = row.colour;
    const line = el(
      "button",
      "row",
      el("span", "name", swatch, row.name),
      el("span", "number", size(row.bytes)),
      el("span", "number faint", percent(row.bytes, most)),
      bar(row.bytes, most, row.colour),
    );
    const field = queryFor(place.by, row.key);
    if (field === "") line.classList.add("plain");
    else line.addEventListener("click", () => state.set({ query: search.mask !== null && state.place.query === field ? "" : field }));
    line.title = field === "" ? "" : `search for ${field}`;
    legend.append(line);
  }
  out.append(legend);
  out.append(el("p", "sum", el("span", "", card.ranges.length > 0 ? "reserved" : "in use"), el("span", "number", size(moment.reserved))));
  if (search.mask !== null) {
    out.append(el("p", "sum found", el("span", "", `found by the search (${count(moment.blocks.length)} blocks)`), el("span", "number", size(moment.found))));
  }
  return out;
}

/** The search that finds a group. */
function queryFor(by: string, key: string): string {
  if (key === "") return "";
  if (by === "owner") return `owner:${key}`;
  if (by === "phase") return `phase:"${key}"`;
  if (by === "module" && !/^(outside|other) /.test(key)) return `module:"${key.split("*")[0].replace(/\.$/, "")}"`;
  if (by === "line" && !/^(without|other) /.test(key)) return `line:"${key}"`;
  return "";
}

/** What is known of the chosen block. */
export function chosen(state: State): HTMLElement | null {
  const { card, place } = state;
  const { block } = place;
  if (block < 0 || block >= card.count) return null;
  const close = el("button", "close", "close");
  close.addEventListener("click", () => state.set({ block: -1 }));
  const fact = (name: string, value: string): HTMLElement | null => (value === "" ? null : el("div", "fact", el("span", "faint", name), el("span", "", value)));
  const frames = card.frameList(block);
  const plain = frames.filter((frame) => card.frames.worth[frame] >= 2);
  const shown = (plain.length > 0 ? plain : frames).slice(0, MOST_FRAMES);
  const out = section(
    "The chosen block",
    close,
    fact("takes", `${size(card.size(block))} at 0x${card.address(card.offset(block)).toString(16)}`),
    fact("requested", card.slack(block) > 0 ? `${size(card.requested(block))}, ${size(card.slack(block))} slack` : ""),
    fact("owner", `${ownerName(OWNERS[card.owner[block]])}${card.named[block] === 1 ? "" : " (inferred)"}`),
    fact("tensor", card.name[block] > 0 ? card.names[card.name[block] - 1] : ""),
    fact("module", card.module[block] > 0 ? card.modules[card.module[block] - 1] : ""),
    fact("lives", life(card, block)),
    fact("allocated in", `${card.phaseAt(card.birth[block])}${card.steps.length > 0 && card.birth[block] > 0 ? `, step ${card.stepAt(card.birth[block]) + 1}` : ""}`),
    fact("stream", card.streams[card.stream[block]]),
  );
  const stack = el("ol", "stack");
  for (const frame of shown) stack.append(el("li", `code worth${card.frames.worth[frame]}`, card.frameText(frame)));
  if (shown.length > 0) out.append(stack);
  else out.append(el("p", "faint", `No stack was recorded. ${describe(card, block)}.`));
  const go = el("button", "", "go to where it is born");
  go.addEventListener("click", () => {
    const span = state.place.to - state.place.from;
    const inside = card.birth[block] >= state.place.from && card.birth[block] <= state.place.to;
    const from = card.birth[block] - span / 2;
    state.set(inside ? { at: card.birth[block] } : { at: card.birth[block], from, to: from + span });
  });
  out.append(go);
  return out;
}

/** Why the card is full, and what other settings would have done. */
export function causes(card: Card): HTMLElement[] {
  const { explanation } = card;
  const out: HTMLElement[] = [];
  const whole = explanation.causes.reduce((sum, cause) => sum + cause.bytes, 0);
  const real = explanation.causes.filter((cause) => !cause.background);
  const rest = explanation.causes.filter((cause) => cause.background && cause.bytes > 0);
  if (explanation.causes.length > 0) {
    const part = section("Why", ...real.map((cause) => causeRow(cause, whole)));
    if (real.length === 0) part.append(el("p", "faint", "No cause stands out: the program needs what it holds."));
    for (const cause of rest) {
      part.append(el("div", "background", el("span", "", cause.cause.replace(/-/g, " ")), el("span", "number", size(cause.bytes)), bar(cause.bytes, whole, "var(--quiet)")));
    }
    out.push(part);
  }
  const own = explanation.what_if[0];
  if (own !== undefined) {
    const rows = explanation.what_if.filter((row) => row.card === own.card);
    const most = Math.max(...rows.map((row) => Math.max(row.peak_reserved_bytes, row.most_reserved_bytes)), own.capacity_bytes < 2 ** 50 ? own.capacity_bytes : 0);
    const died = explanation.verdict.outcome === "oom";
    const part = section("What if", el("p", "faint", `Replays of the recording on ${own.card}${died ? "; it ends with the failure, so what follows is not in it" : ""}.`));
    for (const row of rows) part.append(whatIf(row, most, died));
    const unclear = own.says.startsWith("unclear: ") ? own.says : rows.find((row) => row.says.startsWith("unclear: "))?.says;
    if (unclear !== undefined) part.append(el("p", "faint", sentence(unclear)));
    const others = unclear !== undefined ? [] : explanation.what_if.filter((row) => row.card !== own.card && row.as_recorded);
    if (others.length > 0) {
      const list = el("div", "cards");
      for (const row of others) {
        const tag = el("span", `tag ${row.survives ? "good" : row.may_survive ? "" : "bad"}`, row.card);
        tag.title = row.says;
        list.append(tag);
      }
      part.append(el("p", "faint", died ? "Other cards: gets past this allocation (green), dies (red)" : "Other cards: fits (green), does not (red)"), list);
    }
    const smallest = explanation.smallest_card;
    if (smallest !== null) {
      const such = smallest.card === null ? "" : `, such as ${smallest.card}`;
      part.append(el("p", "", `${died ? "It gets past this allocation" : "What was recorded fits"} on a card of ${size(smallest.capacity_bytes)}${such}.`));
    }
    out.push(part);
  }
  return out;
}

function causeRow(cause: Cause, whole: number): HTMLElement {
  const out = el(
    "div",
    "cause",
    el("div", "row", el("span", "strong", cause.cause.replace(/-/g, " ")), el("span", "number", cause.bytes > 0 ? size(cause.bytes) : "")),
    cause.bytes > 0 ? bar(cause.bytes, whole, "var(--bad)") : null,
    el("p", "", sentence(cause.because)),
  );
  const list = el("ul", "evidence");
  for (const row of cause.evidence.slice(0, 6)) {
    list.append(el("li", "", row.bytes > 0 ? el("b", "", size(row.bytes)) : null, ` ${row.what}`, row.site === null ? null : el("div", "code", site(row.site))));
  }
  if (cause.evidence.length > 0) out.append(list);
  return out;
}

function whatIf(row: WhatIf, most: number, died: boolean): HTMLElement {
  const unclear = row.says.startsWith("unclear: ") && !row.as_recorded;
  const fate = unclear ? "unclear" : row.survives ? (died ? "gets past" : "fits") : row.may_survive ? "perhaps" : "dies";
  const good = fate === "fits" || fate === "gets past";
  const name = row.settings === "" ? (row.as_recorded ? "as recorded" : "default settings") : `${row.settings}${row.as_recorded ? " (as recorded)" : ""}`;
  const limited = row.capacity_bytes < 2 ** 50;
  const [least, highest] = [size(row.least_reserved_bytes), size(row.most_reserved_bytes)];
  const notes: string[] = [];
  if (least !== highest) notes.push(`${least} to ${highest} in ${row.replays} replays with segments elsewhere`);
  if (row.replays_died > 0 && row.replays_died < row.replays) notes.push(`${row.replays_died} of ${row.replays} replays fail`);
  if (fate === "perhaps") notes.push(row.says);
  const out = el(
    "div",
    "whatif",
    el("div", "row", el("span", "code", name), el("span", `tag ${good ? "good" : fate === "dies" ? "bad" : ""}`, fate), el("span", "number", size(row.peak_reserved_bytes))),
    interval(row, most, good ? "var(--good)" : "var(--quiet)", limited ? row.capacity_bytes / most : 0),
    notes.length === 0 ? null : el("p", "faint", `${notes.join("; ")}.`),
  );
  out.title = row.says;
  return out;
}

/** A bar whose end is as long as the replays differ. */
function interval(row: WhatIf, most: number, colour: string, share: number): HTMLElement {
  const out = bar(row.least_reserved_bytes, most, colour, share);
  const part = el("i", "fill spread");
  part.style.left = `${Math.min((row.least_reserved_bytes / Math.max(most, 1)) * 100, 100)}%`;
  part.style.width = `${Math.min(((row.most_reserved_bytes - row.least_reserved_bytes) / Math.max(most, 1)) * 100, 100)}%`;
  part.style.background = colour;
  out.insertBefore(part, out.querySelector(".limit"));
  return out;
}

/** The sections of a command's answer: bars, and texts to copy. */
export function sections(answer: Answer): HTMLElement[] {
  return answer.sections.map((part) => {
    const most = Math.max(part.limit ?? 0, ...part.rows.map((row) => row.bytes ?? 0), 1);
    const out = section(part.title, ...part.lines.map((line) => el("p", "", sentence(line))));
    for (const row of part.rows) {
      const colour = row.tone === "good" ? "var(--good)" : row.tone === "bad" ? "var(--bad)" : "var(--accent)";
      const line = el(
        "div",
        "answer",
        el("div", "row", el("span", "strong", row.name), row.bytes === null ? null : el("span", "number", size(row.bytes))),
        row.bytes === null ? null : bar(row.bytes, most, colour, part.limit === null ? 0 : part.limit / most),
        row.note === "" ? null : el("p", "faint", row.note),
      );
      if (row.code !== null) line.append(copyable(row.code));
      out.append(line);
    }
    return out;
  });
}

function copyable(text: string): HTMLElement {
  const code = el("pre", "code");
  for (const line of text.split("\n")) {
    const kind = line.startsWith("+") && !line.startsWith("+++") ? "added" : line.startsWith("-") && !line.startsWith("---") ? "removed" : "";
    code.append(el("span", kind, line), "\n");
  }
  const copy = el("button", "copy", "copy");
  copy.addEventListener("click", () => {
    const done = (): void => {
      copy.textContent = "copied";
      window.setTimeout(() => (copy.textContent = "copy"), 1500);
    };
    const select = (): void => {
      window.getSelection()?.selectAllChildren(code);
    };
    if (navigator.clipboard === undefined) select();
    else navigator.clipboard.writeText(text).then(done, select);
  });
  return el("div", "copyable", code, copy);
}

/** Owners of two cards side by side. */
export function difference(card: Card, other: Card): HTMLElement {
  const out = section("Compared", el("p", "faint", `${card.label}, less ${other.label}: each at the moment of its own answer`));
  const bytes = (of: Card): Map<string, number> => new Map(of.explanation.owners.map((row) => [row.owner, row.bytes]));
  const [ours, theirs] = [bytes(card), bytes(other)];
  const names = [...new Set([...ours.keys(), ...theirs.keys()])];
  const rows = names.map((name) => ({ name, ours: ours.get(name) ?? 0, theirs: theirs.get(name) ?? 0 }));
  rows.sort((a, b) => Math.abs(b.ours - b.theirs) - Math.abs(a.ours - a.theirs));
  const table = el("div", "differences");
  for (const row of rows) {
    const less = row.ours - row.theirs;
    table.append(
      el("span", "name", ownerName(row.name)),
      el("span", "number", size(row.ours)),
      el("span", "number faint", size(row.theirs)),
      el("span", `number ${less > 0 ? "more" : "less"}`, less === 0 ? "same" : `${less > 0 ? "+" : "−"}${size(Math.abs(less))}`),
    );
  }
  out.append(table);
  return out;
}

/** The parts of the program with their colours, for the strip below the bands. */
export function phaseLegend(card: Card): HTMLElement {
  const used = new Set<number>(card.phaseKinds);
  const out = el("div", "phases");
  PHASES.forEach((name, kind) => {
    if (!used.has(kind)) return;
    const swatch = el("i", "swatch");
    swatch.style.background = phaseHex(kind);
    out.append(el("span", "", swatch, name));
  });
  return out;
}
