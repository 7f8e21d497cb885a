import { hash } from 'node:crypto'
import { crc32, deflateSync } from 'node:zlib'
import { z } from 'zod'
import { DEMO_IMAGE_MODEL, findModel } from './models.ts'
import { createRandom, pickFrom, type Random } from './random.ts'
import { DemoError, parseBody } from './request.ts'

/** What to draw. */
export type Drawing = {
  readonly prompt: string
  readonly n: number
  /** Of both edges, pixels. */
  readonly edge: number
  readonly format: 'url' | 'b64_json'
  /** Digest of the picture to be changed; empty for a new one. */
  readonly picture: string
}

const shared = {
  model: z.string(),
  prompt: z.string().min(1),
  size: z.enum(['256x256', '512x512', '1024x1024']).default('1024x1024'),
  response_format: z.enum(['url', 'b64_json']).default('url'),
}

const generation = z.looseObject({ ...shared, n: z.int().min(1).max(10).default(1) })
const edit = z.looseObject({ ...shared, n: z.coerce.number().int().min(1).max(10).default(1) })

/** Gives what a body of `POST /v1/images/generations` asks for, or throws DemoError. */
export function parseGeneration(body: Uint8Array): Drawing {
  return drawingOf(parseBody(generation, body), '')
}

/** Gives what a form of `POST /v1/images/edits` asks for, or throws DemoError. */
export async function parseEdit(body: Uint8Array, contentType: string): Promise<Drawing> {
  const form = await new Response(new Uint8Array(body), {
    headers: { 'content-type': contentType },
  })
    .formData()
    .catch(() => {
      throw new DemoError({ status: 400, message: 'The body of the request is not a form.' })
    })
  const picture = form.get('image')
  if (!(picture instanceof Blob))
    throw new DemoError({
      status: 400,
      param: 'image',
      message: "Missing required parameter: 'image'.",
    })
  const texts = Object.fromEntries([...form].filter(([, value]) => typeof value === 'string'))
  const asked = parseBody(edit, Buffer.from(JSON.stringify(texts)))
  return drawingOf(asked, hash('sha256', new Uint8Array(await picture.arrayBuffer()), 'hex'))
}

function drawingOf(asked: z.infer<typeof generation>, picture: string): Drawing {
  findModel(asked.model, [DEMO_IMAGE_MODEL])
  const { prompt, n, size, response_format: format } = asked
  return { prompt, n, edge: Number.parseInt(size, 10), format, picture }
}

/**
 * Gives the answer to a request for images. The same request has the same pictures. `nowMs`: Unix
 * milliseconds.
 */
export function drawImages(drawing: Drawing, nowMs: number): Readonly<Record<string, unknown>> {
  if (drawing.format === 'url')
    throw new DemoError({
      status: 400,
      param: 'response_format',
      message: 'This demonstration keeps no pictures: ask for b64_json.',
    })
  const data = Array.from({ length: drawing.n }, (_, index) => ({
    b64_json: Buffer.from(draw(drawing, index)).toString('base64'),
  }))
  return { created: Math.floor(nowMs / 1000), data }
}

type Circle = {
  readonly x: number
  readonly y: number
  readonly radius: number
  readonly colour: Colour
}

/** Colours by the words that name them. */
const COLOURS: ReadonlyMap<string, Colour> = new Map<string, Colour>([
  ['red', [206, 44, 49]],
  ['orange', [233, 125, 31]],
  ['yellow', [242, 200, 46]],
  ['green', [46, 139, 87]],
  ['blue', [41, 98, 189]],
  ['purple', [120, 68, 160]],
  ['pink', [232, 130, 170]],
  ['brown', [121, 85, 60]],
  ['black', [24, 24, 27]],
  ['white', [245, 245, 244]],
  ['grey', [128, 128, 128]],
])

const CIRCLES = 12

function draw({ prompt, picture, edge }: Drawing, index: number): Uint8Array {
  const random = createRandom(JSON.stringify([prompt, picture, index]))
  const words = prompt.toLowerCase().match(/\p{L}+/gu) ?? []
  const named = words.map((word) => COLOURS.get(word)).filter((colour) => colour !== undefined)
  const [first = anyColour(random), ...others] = named
  const palette: readonly [Colour, ...Colour[]] = [first, ...others]
  const canvas = createCanvas(edge)
  const ground = anyColour(random)
  for (let row = 0; row < edge; row++) canvas.fill(row, { from: 0, to: edge }, ground)
  for (let count = 0; count < CIRCLES; count++) {
    const place = { x: random() * edge, y: random() * edge, radius: edge * (0.05 + 0.2 * random()) }
    drawCircle(canvas, { ...place, colour: pickFrom(palette, random) })
  }
  drawWord(canvas)
  return canvas.write()
}

const INK: Colour = [255, 255, 255]

function anyColour(random: Random): Colour {
  return [
    64 + Math.floor(random() * 128),
    64 + Math.floor(random() * 128),
    64 + Math.floor(random() * 128),
  ]
}

function drawCircle(canvas: Canvas, { x, y, radius, colour }: Circle): void {
  for (let row = Math.ceil(y - radius); row < y + radius; row++) {
    const half = Math.sqrt(radius ** 2 - (row - y) ** 2)
    canvas.fill(row, { from: Math.ceil(x - half), to: Math.ceil(x + half) }, colour)
  }
}

/** DEMO, each letter of five rows. */
const WORD = [
  '##..###.#...#..#..',
  '#.#.#...##.##.#.#.',
  '#.#.##..#.#.#.#.#.',
  '#.#.#...#...#.#.#.',
  '##..###.#...#..#..',
]
/** Pixels of the word, in an edge of the picture. */
const CELLS_PER_EDGE = 80

function drawWord(canvas: Canvas): void {
  const cell = canvas.edge / CELLS_PER_EDGE
  for (let row = Math.ceil(2 * cell); row < (2 + WORD.length) * cell; row++)
    for (const [column, mark] of [...(WORD[Math.floor(row / cell) - 2] ?? '')].entries())
      if (mark === '#')
        canvas.fill(
          row,
          { from: Math.ceil((2 + column) * cell), to: Math.ceil((3 + column) * cell) },
          INK,
        )
}

/** Red, green and blue, each 0 to 255. */
type Colour = readonly [number, number, number]

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
/** The text is how a reader of the file knows it, however it was cropped. */
const COMMENT = 'Comment\0[demonstration] No model made this picture.'
const BITS_PER_CHANNEL = 8
const TRUECOLOUR = 2

/** A square picture that is being drawn. */
type Canvas = {
  readonly edge: number
  /** Colours one row from `from` to before `to`; what is outside the picture is left out. */
  fill(row: number, span: { readonly from: number; readonly to: number }, colour: Colour): void
  /** Gives the picture as PNG (3rd edition) of truecolour. */
  write(): Uint8Array
}

/** Gives a canvas of `edge` by `edge` pixels, all black. */
export function createCanvas(edge: number): Canvas {
  // A row is a byte for its filter, none, and three for each pixel.
  const rowBytes = 1 + 3 * edge
  const rows = Buffer.alloc(edge * rowBytes)
  return {
    edge,
    fill(row, { from, to }, colour) {
      if (row < 0 || row >= edge) return
      const start = row * rowBytes + 1
      const first = Math.max(0, from)
      const last = Math.min(edge, to)
      if (first < last) rows.fill(Buffer.from(colour), start + 3 * first, start + 3 * last)
    },
    write() {
      const header = Buffer.alloc(13)
      header.writeUInt32BE(edge, 0)
      header.writeUInt32BE(edge, 4)
      header.set([BITS_PER_CHANNEL, TRUECOLOUR, 0, 0, 0], 8)
      return Buffer.concat([
        SIGNATURE,
        chunk('IHDR', header),
        chunk('tEXt', Buffer.from(COMMENT, 'latin1')),
        chunk('IDAT', deflateSync(rows, { level: 6 })),
        chunk('IEND', Buffer.alloc(0)),
      ])
    },
  }
}

function chunk(type: string, data: Uint8Array): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data])
  const frame = Buffer.alloc(8)
  frame.writeUInt32BE(data.length, 0)
  frame.writeUInt32BE(crc32(body), 4)
  return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)])
}
