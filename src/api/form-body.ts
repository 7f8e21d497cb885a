import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { multipart, type Part } from 'formidable'
import type { Context } from 'koa'
import { koaBody } from 'koa-body'
import { createSerialQueue } from '../runtime/serial-queue.ts'
import type { RouteContext } from './context.ts'
import { ApiError } from './errors.ts'
import { boundaryOf, checkForm, invalidForm, type PartNames } from './form-frame.ts'
import { type BodyLimits, readBody, shownType } from './read-body.ts'

/** A part of the caller's form. Attacker-controlled. */
export type FormPart = PartNames & { readonly bytes: Uint8Array }

/**
 * Returns the parts of a form in order. Throws ApiError as readBody does, and
 * `unsupported_media_type` for another content type. Throws ValidationError if the body is not a
 * form.
 */
export async function readForm(
  { req, res }: RouteContext,
  limits: BodyLimits,
): Promise<readonly FormPart[]> {
  const boundary = boundaryOf(req.headers['content-type'])
  const isPlain = (req.headers['content-encoding'] ?? 'identity').toLowerCase() === 'identity'
  if (boundary === null || !isPlain)
    throw new ApiError(
      'unsupported_media_type',
      `Expected content-type multipart/form-data with a boundary, and no content-encoding, got ${shownType(req.headers['content-type'])}`,
    )
  const body = await readBody(req, res, limits)
  return await forms.run(() => parseForm(body, boundary))
}

/** Only one form is parsed at a time, so hostile forms do not block other calls. */
const forms = createSerialQueue()

/**
 * Parses a form (RFC 7578). After checkForm, koa-body splits the form in memory. Throws
 * ValidationError.
 */
export async function parseForm(body: Buffer, boundary: string): Promise<readonly FormPart[]> {
  const { pieces, parts } = checkForm(body, boundary)
  const source = Object.assign(Readable.from(slicesOf(pieces)), {
    headers: {
      'content-type': `multipart/form-data; boundary="${boundary}"`,
      'content-length': String(body.length),
    },
  })
  const memory = Buffer.allocUnsafeSlow(body.length)
  const contents: Uint8Array[] = []
  let at = 0
  const onPart = (part: Part) => {
    const start = at
    part.on('data', (lent: Buffer) => {
      at += lent.copy(memory, at)
    })
    part.on('end', () => contents.push(memory.subarray(start, at)))
  }
  const parser = koaBody({
    multipart: true,
    json: false,
    urlencoded: false,
    text: false,
    patchKoa: false,
    // Without this list, a parser whose name is in the boundary would also start.
    formidable: { enabledPlugins: [multipart], encoding: 'binary', onPart },
  })
  try {
    // The parser uses only these members of a context.
    const context = { method: 'POST', is: () => 'multipart', req: source } as unknown as Context
    await parser(context, async () => {})
  } catch (error) {
    throw error instanceof Error && 'httpCode' in error ? invalidForm('a form') : error
  } finally {
    source.destroy()
  }
  return parts.map((part, index) => ({ ...part, bytes: contents[index] ?? new Uint8Array() }))
}

/** Sockets deliver pieces of about this size. */
const SLICE_BYTES = 64 * 1024

/** Other calls can run between two slices. A hostile form takes a second to parse. */
async function* slicesOf(pieces: readonly Buffer[]): AsyncGenerator<Buffer> {
  for (const piece of pieces)
    for (let at = 0; at < piece.length; at += SLICE_BYTES) {
      yield piece.subarray(at, at + SLICE_BYTES)
      await nextTurn()
    }
}
