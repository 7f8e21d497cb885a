import { hash } from 'node:crypto'
import { z } from 'zod'
import { DemoError } from './errors.ts'
import { checkImageModel } from './models.ts'
import { parseBody } from './request.ts'

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
      throw new DemoError({ status: 400, message: 'The body of the request is no form.' })
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
  checkImageModel(asked.model)
  const { prompt, n, size, response_format: format } = asked
  return { prompt, n, edge: Number.parseInt(size, 10), format, picture }
}
