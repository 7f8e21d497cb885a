import { DemoError } from './errors.ts'
import type { Drawing } from './image-request.ts'
import { type Canvas, type Colour, createCanvas } from './png.ts'
import { createRandom, pickFrom, type Random } from './random.ts'

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
