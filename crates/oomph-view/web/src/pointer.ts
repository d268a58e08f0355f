// Distinguishes dragging a pointer (press, move, release) from a click.

interface Drawn<T> {
  start(event: PointerEvent): T;
  move(event: PointerEvent, start: T): void;
  end(event: PointerEvent, start: T, moved: boolean): void;
}

export class Drag<T> {
  constructor(element: HTMLElement, drawn: Drawn<T>) {
    let start: T | null = null;
    let from: [number, number] = [0, 0];
    let moved = false;
    element.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      start = drawn.start(event);
      from = [event.clientX, event.clientY];
      moved = false;
      element.setPointerCapture(event.pointerId);
    });
    element.addEventListener("pointermove", (event) => {
      if (start === null) return;
      if (Math.abs(event.clientX - from[0]) + Math.abs(event.clientY - from[1]) > 3) moved = true;
      if (moved) drawn.move(event, start);
    });
    const stop = (event: PointerEvent): void => {
      if (start !== null) drawn.end(event, start, moved);
      start = null;
    };
    element.addEventListener("pointerup", stop);
    element.addEventListener("pointercancel", () => {
      start = null;
    });
  }
}
