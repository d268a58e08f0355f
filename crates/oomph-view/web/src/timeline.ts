// Memory over time, as bands that lie on each other, with the card's capacity, the peak and the death.

import { type Bands, bands, type Curves, found, given } from "./bands";
import { Canvas, label, tooltip } from "./canvas";
import { css } from "./paint";
import { groupHex, phaseHex, rgba, type Theme } from "./colours";
import { type Card, type Grouping, lower, PHASES } from "./data";
import { count, duration, el, ownerName, size } from "./format";
import { Drag } from "./pointer";
import type { Search } from "./search";
import type { State } from "./state";

const LEFT = 64;
const RIGHT = 10;
const TOP = 12;
const STRIP = 13;
const AXIS = 18;

/** What a card has for PyTorch's allocator, or null where no card is known. */
export function usable(card: Card): number | null {
  const known = card.explanation.card;
  return known === null ? null : known.capacity_bytes - known.context_bytes - known.other_bytes;
}

/** The highest that reserved memory ever was, or what was requested where the recording has no segments. */
export function highest(card: Card): number {
  return card.reservedBytes.reduce((most, bytes) => Math.max(most, bytes), card.mostRequested);
}

export class Timeline {
  readonly canvas: Canvas;
  private bands: Bands | null = null;
  private curves: Curves | null = null;
  private key = "";
  private hoverX = -1;
  private hoverY = -1;
  /** A stretch that is being chosen, in pixels. */
  private chosen: [number, number] | null = null;

  constructor(
    private readonly state: State,
    private readonly which: () => Card,
    private readonly search: () => Search,
    private readonly scale: () => number,
    private readonly linked: boolean,
  ) {
    this.canvas = new Canvas("timeline", (theme) => this.draw(theme));
    this.listen();
  }

  private grouping(): Grouping {
    const card = this.which();
    return card.groupings.find((grouping) => grouping.by === this.state.place.by) ?? card.groupings[0];
  }

  private prepared(): Curves {
    const card = this.which();
    const mask = this.linked ? this.search().mask : null;
    const key = `${card.label}|${this.state.place.by}|${mask === null ? "" : this.state.place.query}`;
    if (this.curves === null || key !== this.key) {
      this.curves = mask === null ? given(card, this.grouping()) : found(card, this.grouping(), mask);
      this.key = key;
    }
    return this.curves;
  }

  private get inner(): { width: number; height: number; base: number } {
    const height = Math.max(this.canvas.height - TOP - STRIP - AXIS, 10);
    return { width: Math.max(Math.floor(this.canvas.width - LEFT - RIGHT), 16), height, base: TOP + height };
  }

  /** The shown positions; a card that is compared is shown whole where its own range is not the state's. */
  private range(): [number, number] {
    const { from, to } = this.state.place;
    if (this.linked) return [from, to];
    const [card, own] = [this.which(), this.state.card];
    const scale = Math.max(card.events, 1) / Math.max(own.events, 1);
    return [from * scale, to * scale];
  }

  private position(x: number): number {
    const [from, to] = this.range();
    return from + ((to - from) * (x - LEFT)) / this.inner.width;
  }

  private pixel(position: number): number {
    const [from, to] = this.range();
    return LEFT + ((position - from) / (to - from)) * this.inner.width;
  }

  private draw(theme: Theme): void {
    const card = this.which();
    const curves = this.prepared();
    const { width, height, base } = this.inner;
    const [from, to] = this.range();
    const shown = bands(card, curves, from, to, width);
    this.bands = shown;
    const top = this.scale();
    const y = (bytes: number): number => base - (bytes / top) * height;
    const { rects } = this.canvas;
    const grouping = this.grouping();
    const names = grouping.names.length;
    const floor = new Float64Array(width);
    const grid = rgba(theme.grid);
    for (let bytes = 0, step = this.step(top); bytes <= top; bytes += step) rects.add(LEFT, Math.round(y(bytes)), width, 1, grid);
    const level = (values: ArrayLike<number>, at: number, colour: number): void => {
      for (let x = 0; x < width; ) {
        const start = x;
        const [bottom, bytes] = [floor[x], values[at + x]];
        while (x < width && floor[x] === bottom && values[at + x] === bytes) x++;
        if (bytes > 0) rects.add(LEFT + start, y(bottom + bytes), x - start, (bytes / top) * height, colour);
      }
      for (let x = 0; x < width; x++) floor[x] += Math.max(values[at + x], 0);
    };
    for (let group = 0; group < shown.groups; group++) {
      const colour = group >= names ? theme.muted : rgba(groupHex(grouping.by, group, names));
      level(shown.bytes, group * width, colour);
    }
    const rest = new Float64Array(width);
    for (let x = 0; x < width; x++) rest[x] = Math.max(shown.reserved[x] - floor[x], 0);
    level(rest, 0, theme.cached);
    this.strip(base);
    this.canvas.write((context) => this.lines(context, theme, card, top, y));
  }

  /** The distance of the lines of the grid, in bytes. */
  private step(top: number): number {
    return nice(top / Math.max(this.inner.height / 42, 1));
  }

  /** The parts of the program, below the bands. */
  private strip(base: number): void {
    const card = this.which();
    const { width } = this.inner;
    const [from, to] = this.range();
    let last = "";
    for (let x = 0, start = 0, kind = 7; x <= width; x++) {
      const position = from + ((to - from) * x) / width;
      const at = lower(card.phaseStarts, position + 1) - 1;
      const next = at < 0 ? 7 : card.phaseKinds[at];
      const key = `${next}`;
      if (x === width || (key !== last && last !== "")) {
        this.canvas.rects.add(LEFT + start, base + 3, x - start, STRIP - 4, rgba(phaseHex(kind), 0.9));
        start = x;
      }
      last = key;
      kind = next;
    }
  }

  private lines(
    context: CanvasRenderingContext2D,
    theme: Theme,
    card: Card,
    top: number,
    y: (bytes: number) => number,
  ): void {
    const { width, base } = this.inner;
    const ground = css(theme.ground);
    const [from, to] = this.range();
    const line = (x0: number, y0: number, x1: number, y1: number, ink: string, dash: number[] = []): void => {
      context.strokeStyle = ink;
      context.setLineDash(dash);
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(Math.round(x0) + 0.5, Math.round(y0) + 0.5);
      context.lineTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
      context.stroke();
      context.setLineDash([]);
    };
    // Sizes on the left.
    const step = this.step(top);
    context.textAlign = "right";
    for (let bytes = 0; bytes <= top; bytes += step) {
      context.fillStyle = theme.faint;
      context.fillText(size(bytes), LEFT - 7, y(bytes));
    }
    context.textAlign = "left";
    // Steps and times below.
    const clock = !Number.isNaN(card.timeOf(0));
    const ticks = Math.max(Math.floor(width / 130), 1);
    for (let tick = 0; tick <= ticks; tick++) {
      const x = LEFT + (width * tick) / ticks;
      const position = from + ((to - from) * tick) / ticks;
      const text = clock ? duration(card.timeOf(position)) : `event ${count(position)}`;
      context.textAlign = tick === 0 ? "left" : tick === ticks ? "right" : "center";
      context.fillStyle = theme.faint;
      context.fillText(text, x, base + STRIP + 9);
    }
    context.textAlign = "left";
    if (card.steps.length > 0 && this.pixel(card.steps[Math.min(1, card.steps.length - 1)]) - this.pixel(card.steps[0]) > 18) {
      for (const end of card.steps) {
        const x = this.pixel(end);
        if (x > LEFT && x < LEFT + width) line(x, base, x, base + STRIP, theme.text);
      }
    }
    this.phaseNames(context, base);
    const known = usable(card);
    if (known !== null && known <= top) {
      line(LEFT, y(known), LEFT + width, y(known), theme.bad, [6, 4]);
      const total = card.explanation.card?.capacity_bytes ?? known;
      const less = total > known ? `, ${size(total - known)} of it outside PyTorch` : "";
      label(context, `card ${size(total)}${less}`, LEFT + 6, y(known) - 9 < TOP ? y(known) + 10 : y(known) - 9, theme.bad, ground);
    } else if (known !== null) {
      label(context, `card ${size(card.explanation.card?.capacity_bytes ?? known)}, above this picture`, LEFT + 6, TOP + 6, theme.bad, ground);
    }
    this.marks(context, theme, card, y, line, ground);
  }

  private phaseNames(context: CanvasRenderingContext2D, base: number): void {
    const card = this.which();
    context.fillStyle = "#fff";
    context.font = "10px system-ui, sans-serif";
    const { width } = this.inner;
    const starts = card.phaseStarts;
    const [from, to] = this.range();
    const first = Math.max(lower(starts, from) - 1, 0);
    for (let at = first, drawn = 0; at < starts.length && starts[at] < to && drawn < 200; at++) {
      const left = Math.max(this.pixel(starts[at]), LEFT);
      const right = Math.min(at + 1 < starts.length ? this.pixel(starts[at + 1]) : LEFT + width, LEFT + width);
      const text = PHASES[card.phaseKinds[at]];
      if (right - left > context.measureText(text).width + 8) {
        context.fillText(text, left + 4, base + 3 + (STRIP - 4) / 2 + 0.5);
        drawn++;
      }
    }
    context.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
  }

  private marks(
    context: CanvasRenderingContext2D,
    theme: Theme,
    card: Card,
    y: (bytes: number) => number,
    line: (x0: number, y0: number, x1: number, y1: number, ink: string, dash?: number[]) => void,
    ground: string,
  ): void {
    const { width, base } = this.inner;
    const within = (x: number): boolean => x >= LEFT - 1 && x <= LEFT + width + 1;
    const { place } = this.state;
    const oom = card.explanation.oom;
    for (const failure of card.failures) {
      const x = this.pixel(failure);
      if (!within(x)) continue;
      const fatal = failure === card.fatal;
      // What the program got past is a tick; there can be hundreds.
      line(x, fatal ? TOP : TOP - 8, x, fatal ? base : TOP - 1, theme.bad);
      if (fatal && oom !== null) {
        // What was asked for and refused, on top of what was there.
        const [high, low] = [y(card.reservedAtPosition(failure) + oom.requested_bytes), y(card.reservedAtPosition(failure))];
        context.strokeStyle = theme.bad;
        context.setLineDash([3, 2]);
        context.strokeRect(Math.round(x) - 5.5, Math.max(high, 2), 11, low - Math.max(high, 2));
        context.setLineDash([]);
        label(context, `out of memory: refused ${size(oom.requested_bytes)}`, x - 9, TOP + 22, theme.bad, ground, x > LEFT + width / 2);
      }
    }
    if (this.linked) {
      const peak = card.moment;
      if (card.fatal === null && within(this.pixel(peak)) && peak !== place.at) {
        const x = this.pixel(peak);
        line(x, TOP, x, base, theme.faint, [2, 3]);
        label(context, "peak", x + 5, TOP + 6, theme.faint, ground, x > LEFT + width - 60);
      }
      const x = this.pixel(place.at);
      if (within(x)) {
        line(x, TOP - 8, x, base + STRIP, theme.accent);
        context.fillStyle = theme.accent;
        context.beginPath();
        context.moveTo(x - 5, TOP - 10);
        context.lineTo(x + 6, TOP - 10);
        context.lineTo(x + 0.5, TOP - 3);
        context.fill();
      }
    }
    if (this.hoverX >= LEFT && this.hoverX <= LEFT + width && this.chosen === null) {
      line(this.hoverX, TOP, this.hoverX, base, theme.faint);
    }
    if (this.chosen !== null) {
      context.fillStyle = theme.accent;
      context.globalAlpha = 0.18;
      const [a, b] = this.chosen;
      context.fillRect(Math.min(a, b), TOP, Math.abs(b - a), base - TOP);
      context.globalAlpha = 1;
    }
  }

  private listen(): void {
    const { element } = this.canvas;
    const { state } = this;
    new Drag(element, {
      start: (event) => {
        const [x] = this.canvas.pointer(event);
        const { from, to } = state.place;
        return { x, from, to, choose: event.shiftKey };
      },
      move: (event, start) => {
        const [x] = this.canvas.pointer(event);
        if (start.choose) {
          this.chosen = [start.x, x];
          this.canvas.redraw();
          return;
        }
        const moved = ((start.x - x) / this.inner.width) * (start.to - start.from);
        state.set({ from: start.from + moved, to: start.to + moved });
      },
      end: (event, start, moved) => {
        const [x] = this.canvas.pointer(event);
        const chosen = this.chosen;
        this.chosen = null;
        if (chosen !== null && Math.abs(chosen[1] - chosen[0]) > 3 && this.linked) {
          const ends = [this.position(Math.min(...chosen)), this.position(Math.max(...chosen))];
          state.set({ from: ends[0], to: ends[1] });
        } else if (!moved && this.linked) {
          state.set({ at: this.momentAt(x), block: -1 });
        }
        void start;
        this.canvas.redraw();
      },
    });
    element.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    element.addEventListener("dblclick", () => state.set({ from: 0, to: Math.max(state.card.events, 1) }));
    element.addEventListener("mousemove", (event) => this.hover(event));
    element.addEventListener("mouseleave", () => {
      this.hoverX = -1;
      tooltip.hide();
      this.canvas.redraw();
    });
  }

  /** The fullest moment of the column of pixels below the pointer. */
  private momentAt(x: number): number {
    const column = Math.round(x - LEFT);
    const shown = this.bands;
    if (shown === null || shown.width === 0) return 0;
    return shown.moments[Math.min(Math.max(column, 0), shown.width - 1)];
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const { place } = this.state;
    const [x] = this.canvas.pointer(event);
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const moved = (event.deltaX / this.inner.width) * (place.to - place.from);
      this.state.set({ from: place.from + moved, to: place.to + moved });
      return;
    }
    const share = Math.min(Math.max((x - LEFT) / this.inner.width, 0), 1);
    zoom(this.state, 1.0016 ** event.deltaY, share);
  }

  private hover(event: MouseEvent): void {
    [this.hoverX, this.hoverY] = this.canvas.pointer(event);
    const shown = this.bands;
    const card = this.which();
    const column = Math.round(this.hoverX - LEFT);
    if (shown === null || column < 0 || column >= shown.width || event.buttons !== 0) {
      tooltip.hide();
      this.canvas.redraw();
      return;
    }
    const moment = shown.moments[column];
    const { height, base } = this.inner;
    const bytes = ((base - this.hoverY) / height) * this.scale();
    const grouping = this.grouping();
    let below = 0;
    let name = "";
    let held = 0;
    let used = 0;
    for (let group = 0; group < shown.groups; group++) {
      const amount = shown.bytes[group * shown.width + column];
      if (name === "" && bytes >= below && bytes < below + amount) {
        name = group >= grouping.names.length ? "not found by the search" : ownerName(grouping.names[group]);
        held = amount;
      }
      below += amount;
      used += amount;
    }
    const reserved = shown.reserved[column];
    if (name === "" && bytes >= used && bytes < reserved) [name, held] = ["cached, or slack inside blocks", reserved - used];
    const time = card.timeOf(moment);
    const step = card.steps.length > 0 ? `step ${card.stepAt(moment) + 1}, ` : "";
    tooltip.show(
      event,
      name === "" ? null : el("div", "strong", `${name}: ${size(held)}`),
      `requested ${size(used)}, reserved ${size(reserved)}`,
      el("div", "faint", `${step}${card.phaseAt(moment)}, event ${count(moment)}${Number.isNaN(time) ? "" : `, ${duration(time)}`}`),
    );
    this.canvas.redraw();
  }
}

/** Makes the shown stretch `factor` times as long; `share` of the picture stays where it is. */
export function zoom(state: State, factor: number, share: number): void {
  const { from, to } = state.place;
  const fixed = from + (to - from) * share;
  const least = Math.min(8, Math.max(state.card.events, 1));
  const span = Math.min(Math.max((to - from) * factor, least), Math.max(state.card.events, 1));
  state.set({ from: fixed - span * share, to: fixed + span * (1 - share) });
}

/** A round number of bytes at or above a value. */
function nice(bytes: number): number {
  let unit = 1;
  while (unit * 1024 <= bytes) unit *= 1024;
  for (const factor of [1, 2, 5, 10, 20, 50, 100, 200, 256, 512]) if (unit * factor >= bytes) return unit * factor;
  return unit * 1024;
}
