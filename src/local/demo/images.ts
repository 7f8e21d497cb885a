import { hash } from 'node:crypto'
import { crc32, deflateSync } from 'node:zlib'
import { z } from 'zod'
import { checkModel, DEMO_IMAGE_MODEL } from './models.ts'
import { createRandom, pickFrom } from './random.ts'
import { DemoError, parseBody } from './request.ts'

export type Drawing = {
  readonly prompt: string
  readonly n: number
  /** Length of both edges, pixels. */
  readonly edge: number
  readonly format: 'url' | 'b64_json'
  /** Digest of the picture that an edit changes. Empty for a new picture. */
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

/** Body of `POST /v1/images/generations`. Throws DemoError. */
export function parseGeneration(body: Uint8Array): Drawing {
  return drawingOf(parseBody(generation, body), '')
}

/** Form of `POST /v1/images/edits`. Throws DemoError. */
export async function parseEdit(body: Uint8Array, contentType: string): Promise<Drawing> {
  const form = await new Response(new Uint8Array(body), {
    headers: { 'content-type': contentType },
  })
    .formData()
    .catch(() => {
      throw new DemoError(400, 'The body of the request is not a form.')
    })
  const picture = form.get('image')
  if (!(picture instanceof Blob))
    throw new DemoError(400, "Missing required parameter: 'image'.", { param: 'image' })
  const texts = Object.fromEntries([...form].filter(([, value]) => typeof value === 'string'))
  const asked = parseBody(edit, Buffer.from(JSON.stringify(texts)))
  return drawingOf(asked, hash('sha256', new Uint8Array(await picture.arrayBuffer()), 'hex'))
}

function drawingOf(asked: z.infer<typeof generation>, picture: string): Drawing {
  checkModel(asked.model, [DEMO_IMAGE_MODEL])
  const { prompt, n, size, response_format: format } = asked
  return { prompt, n, edge: Number.parseInt(size, 10), format, picture }
}

/** The same request always gets the same pictures. `nowMs`: Unix milliseconds. */
export function drawImages(drawing: Drawing, nowMs: number): Readonly<Record<string, unknown>> {
  if (drawing.format === 'url')
    throw new DemoError(400, 'This demonstration keeps no pictures: ask for b64_json.', {
      param: 'response_format',
    })
  const data = Array.from({ length: drawing.n }, (_, index) => ({
    b64_json: Buffer.from(draw(drawing, index)).toString('base64'),
  }))
  return { created: Math.floor(nowMs / 1000), data }
}

/** Red, green and blue, each 0 to 255. */
type Colour = readonly [number, number, number]

const INK: Colour = [255, 255, 255]
const COLOURS = 4
/** The picture has this many fields in each direction. Each field has one colour. */
const FIELDS = 32

const WORD = [
  '##..###.#...#..#..',
  '#.#.#...##.##.#.#.',
  '#.#.##..#.#.#.#.#.',
  '#.#.#...#...#.#.#.',
  '##..###.#...#..#..',
]

function draw({ prompt, picture, edge }: Drawing, index: number): Uint8Array {
  const random = createRandom(JSON.stringify([prompt, picture, index]))
  const channel = () => 64 + Math.floor(random() * 128)
  const palette = Array.from({ length: COLOURS }, (): Colour => [channel(), channel(), channel()])
  const side = edge / FIELDS
  const rows = Array.from({ length: FIELDS }, (_, row) => {
    const fields = Array.from({ length: FIELDS }, (_, column) => {
      const colour = pickFrom(palette, random)
      const isInk = WORD[row - 2]?.[column - 2] === '#'
      return Buffer.alloc(3 * side, Buffer.from(isInk ? INK : colour))
    })
    // The first byte of a row names its filter. 0: no filter.
    const pixels = Buffer.concat([Buffer.of(0), ...fields])
    return Buffer.alloc(side * pixels.length, pixels)
  })
  return writePng(edge, Buffer.concat(rows))
}

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
/** Eight bits per channel, truecolour, and zero for compression, filter and interlace methods. */
const DEPTH_AND_METHODS = [8, 2, 0, 0, 0]
/** Identifies the file as a demonstration, even if the visible word DEMO is cut off. */
const COMMENT = 'Comment\0[demonstration] No model made this picture.'

/** Encodes a square picture. Each row in `rows` begins with its filter byte. */
export function writePng(edge: number, rows: Buffer): Uint8Array {
  const header = Buffer.alloc(8)
  header.writeUInt32BE(edge, 0)
  header.writeUInt32BE(edge, 4)
  return Buffer.concat([
    SIGNATURE,
    chunk('IHDR', Buffer.concat([header, Buffer.from(DEPTH_AND_METHODS)])),
    chunk('tEXt', Buffer.from(COMMENT, 'latin1')),
    chunk('IDAT', deflateSync(rows, { level: 6 })),
    chunk('IEND', Buffer.alloc(0)),
  ])
}

function chunk(type: string, data: Uint8Array): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data])
  const frame = Buffer.alloc(8)
  frame.writeUInt32BE(data.length, 0)
  frame.writeUInt32BE(crc32(body), 4)
  return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)])
}
