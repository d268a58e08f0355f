// Rectangles, by WebGL2 where it is there and by a canvas where not.

/** Rectangles in pixels: x, y, width, height and a colour each. */
export class Rects {
  data = new Float32Array(4096);
  colours = new Uint32Array(1024);
  count = 0;

  clear(): void {
    this.count = 0;
  }

  /** Adds a rectangle; a colour is 0xAABBGGRR. */
  add(x: number, y: number, width: number, height: number, colour: number): void {
    if (this.count === this.colours.length) {
      const data = new Float32Array(this.data.length * 2);
      data.set(this.data);
      this.data = data;
      const colours = new Uint32Array(this.colours.length * 2);
      colours.set(this.colours);
      this.colours = colours;
    }
    const at = this.count * 4;
    this.data[at] = x;
    this.data[at + 1] = y;
    this.data[at + 2] = width;
    this.data[at + 3] = height;
    this.colours[this.count++] = colour;
  }
}

export interface Painter {
  /** What does the drawing. */
  readonly kind: string;
  /** What text can be written with on the same canvas, if anything. */
  readonly context: CanvasRenderingContext2D | null;
  /** Replaces the picture. */
  paint(rects: Rects, width: number, height: number, ground: number): void;
}

const VERTEX = `#version 300 es
uniform vec2 size;
in vec4 rect;
in vec4 colour;
out vec4 tint;
void main() {
  vec2 corner = vec2(gl_VertexID & 1, gl_VertexID >> 1);
  vec2 at = (rect.xy + corner * rect.zw) / size;
  gl_Position = vec4(at.x * 2.0 - 1.0, 1.0 - at.y * 2.0, 0.0, 1.0);
  tint = colour;
}`;

const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 tint;
out vec4 pixel;
void main() { pixel = vec4(tint.rgb * tint.a, tint.a); }`;

class Gl implements Painter {
  readonly kind = "webgl2";
  readonly context = null;
  private readonly size: WebGLUniformLocation | null;
  private readonly buffers: [WebGLBuffer | null, WebGLBuffer | null];

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly gl: WebGL2RenderingContext,
  ) {
    const program = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]] as const) {
      const shader = gl.createShader(kind);
      if (shader === null) throw new Error("no shader");
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(program, shader);
    }
    gl.bindAttribLocation(program, 0, "rect");
    gl.bindAttribLocation(program, 1, "colour");
    gl.linkProgram(program);
    if (gl.getProgramParameter(program, gl.LINK_STATUS) !== true) throw new Error("the shaders do not link");
    gl.useProgram(program);
    this.size = gl.getUniformLocation(program, "size");
    this.buffers = [gl.createBuffer(), gl.createBuffer()];
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[0]);
    gl.enableVertexAttribArray(0);
    gl.vertexAttribPointer(0, 4, gl.FLOAT, false, 0, 0);
    gl.vertexAttribDivisor(0, 1);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[1]);
    gl.enableVertexAttribArray(1);
    gl.vertexAttribPointer(1, 4, gl.UNSIGNED_BYTE, true, 0, 0);
    gl.vertexAttribDivisor(1, 1);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  paint(rects: Rects, width: number, height: number, ground: number): void {
    const { gl } = this;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor((ground & 255) / 255, ((ground >> 8) & 255) / 255, ((ground >> 16) & 255) / 255, 1);
    gl.clear(gl.COLOR_BUFFER_BIT);
    if (rects.count === 0) return;
    gl.uniform2f(this.size, width, height);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[0]);
    gl.bufferData(gl.ARRAY_BUFFER, rects.data.subarray(0, rects.count * 4), gl.STREAM_DRAW);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[1]);
    gl.bufferData(gl.ARRAY_BUFFER, rects.colours.subarray(0, rects.count), gl.STREAM_DRAW);
    gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, rects.count);
  }
}

class Flat implements Painter {
  readonly kind = "canvas";

  constructor(
    private readonly canvas: HTMLCanvasElement,
    readonly context: CanvasRenderingContext2D,
  ) {}

  paint(rects: Rects, width: number, height: number, ground: number): void {
    const { context } = this;
    context.setTransform(this.canvas.width / width, 0, 0, this.canvas.height / height, 0, 0);
    context.fillStyle = css(ground);
    context.fillRect(0, 0, width, height);
    let last = -1;
    for (let index = 0; index < rects.count; index++) {
      const colour = rects.colours[index];
      if (colour !== last) context.fillStyle = css(colour);
      last = colour;
      const at = index * 4;
      context.fillRect(rects.data[at], rects.data[at + 1], rects.data[at + 2], rects.data[at + 3]);
    }
  }
}

/** 0xAABBGGRR for a stylesheet. */
export function css(colour: number): string {
  const alpha = ((colour >>> 24) & 255) / 255;
  return `rgba(${colour & 255},${(colour >>> 8) & 255},${(colour >>> 16) & 255},${alpha})`;
}

let known: boolean | null = null;

/** Whether WebGL is drawn by a card. Drawn by the processor it takes several times as long as the plain canvas. */
function hasCard(): boolean {
  if (known !== null) return known;
  known = false;
  const gl = document.createElement("canvas").getContext("webgl2", { failIfMajorPerformanceCaveat: true });
  if (gl === null) return known;
  let name = String(gl.getParameter(gl.RENDERER));
  // Some browsers tell it only here; the others warn of the extension.
  if (/^WebKit/i.test(name)) {
    const info = gl.getExtension("WEBGL_debug_renderer_info");
    if (info !== null) name = String(gl.getParameter(info.UNMASKED_RENDERER_WEBGL));
  }
  known = !/swiftshader|llvmpipe|softpipe|software|basic render/i.test(name);
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return known;
}

/** A painter for a canvas. `?canvas` in the address asks for the plain one, `?webgl` for the other. */
export function painter(canvas: HTMLCanvasElement): Painter | null {
  const asked = window.location.search;
  if (!asked.includes("canvas")) {
    try {
      const wanted = asked.includes("webgl") || hasCard();
      const gl = wanted ? canvas.getContext("webgl2", { alpha: false, antialias: false, depth: false }) : null;
      if (gl !== null) return new Gl(canvas, gl);
    } catch {
      // The plain canvas draws the same.
    }
  }
  const context = canvas.getContext("2d", { alpha: false, willReadFrequently: true });
  return context === null ? null : new Flat(canvas, context);
}
