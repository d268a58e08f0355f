// A picture of rectangles with text and lines above them; drawn when something changed.

import { type Theme, theme } from "./colours";
import { el } from "./format";
import { type Painter, painter, Rects } from "./paint";

export type Writing = (context: CanvasRenderingContext2D) => void;

export class Canvas {
  readonly element: HTMLElement;
  readonly rects = new Rects();
  private readonly layers: HTMLCanvasElement[];
  private readonly painter: Painter | null;
  private readonly context: CanvasRenderingContext2D | null;
  private writings: Writing[] = [];
  private waiting = false;
  width = 0;
  height = 0;

  constructor(
    className: string,
    private readonly draw: (theme: Theme) => void,
  ) {
    const below = el("canvas", "");
    this.layers = [below];
    this.painter = painter(below);
    this.context = this.painter?.context ?? null;
    if (this.context === null) {
      // Only a plain canvas can hold the text as well. Each layer is sent to the screen and mixed there in every frame.
      const above = el("canvas", "above");
      this.layers.push(above);
      // A few lines and words are drawn faster by the processor than sent to a card, and much faster than to none.
      this.context = above.getContext("2d", { willReadFrequently: true });
    }
    this.element = el("div", `canvas ${className}`, ...this.layers);
    this.element.tabIndex = 0;
    this.element.dataset.painter = this.painter?.kind ?? "none";
    new ResizeObserver(() => this.redraw()).observe(this.element);
    below.addEventListener("webglcontextlost", (event) => event.preventDefault());
  }

  /** Text and lines, which are drawn once all rectangles are. */
  write(writing: Writing): void {
    this.writings.push(writing);
  }

  /** Draws with the next frame. */
  redraw(): void {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.now();
    });
  }

  private now(): void {
    const width = this.element.clientWidth;
    const height = this.element.clientHeight;
    if (width === 0 || height === 0) return;
    const scale = Math.min(window.devicePixelRatio || 1, 2);
    for (const canvas of this.layers) {
      const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
      if (canvas.width !== wide) canvas.width = wide;
      if (canvas.height !== high) canvas.height = high;
    }
    this.width = width;
    this.height = height;
    this.rects.clear();
    this.writings = [];
    const colours = theme();
    this.draw(colours);
    this.painter?.paint(this.rects, width, height, colours.ground);
    const { context } = this;
    if (context !== null) {
      context.setTransform(scale, 0, 0, scale, 0, 0);
      if (this.layers.length > 1) context.clearRect(0, 0, width, height);
      context.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
      context.textBaseline = "middle";
      for (const writing of this.writings) writing(context);
    }
    frames.drawn++;
  }

  /** Where the pointer is, in pixels of the picture. */
  pointer(event: MouseEvent): [number, number] {
    const box = this.element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

/** How many pictures were drawn; the tests count them. */
export const frames = { drawn: 0 };

/** Text with a ground below it, so that it can be read on anything. */
export function label(
  context: CanvasRenderingContext2D,
  text: string,
  x: number,
  y: number,
  ink: string,
  ground: string,
  right = false,
): void {
  const width = context.measureText(text).width;
  const left = right ? x - width - 4 : x;
  context.fillStyle = ground;
  context.globalAlpha = 0.85;
  context.fillRect(left - 3, y - 8, width + 6, 16);
  context.globalAlpha = 1;
  context.fillStyle = ink;
  context.fillText(text, left, y);
}

const tip = el("div", "tip");
tip.hidden = true;

/** The box next to the pointer. */
export const tooltip = {
  element: tip,
  show(event: MouseEvent, ...rows: (Node | string | null)[]): void {
    tip.replaceChildren(...rows.filter((row) => row !== null).map((row) => (typeof row === "string" ? el("div", "", row) : row)));
    tip.hidden = false;
    const { innerWidth, innerHeight } = window;
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - 14 - box.width : event.clientX + 14;
    const top = event.clientY + 14 + box.height > innerHeight ? event.clientY - 14 - box.height : event.clientY + 14;
    tip.style.left = `${Math.max(left, 4)}px`;
    tip.style.top = `${Math.max(top, 4)}px`;
  },
  hide(): void {
    tip.hidden = true;
  },
};
