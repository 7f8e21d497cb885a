import { promisify } from 'node:util'
import { brotliCompress, constants, gzip } from 'node:zlib'
import type { ApiContext, ApiMiddleware } from './context.ts'

/** Shorter answers are sent as they are: they fit a packet or two anyway. */
export const COMPRESSED_BYTES_MIN = 2_048

/**
 * Compresses long JSON answers to GET and HEAD, with brotli or gzip as the client says (RFC 9110,
 * 12.5.3). `vary` is set on all answers that might have been compressed. Call it outside of what
 * answers errors; the work is done off the event loop.
 *
 * Streams are never compressed, because events would be held back. Answers to POST are not either:
 * an attacker's words in a prompt can stand there beside a customer's, and the length of both
 * compressed together gives the customer's away (BREACH). The one such answer that is large,
 * vectors, has a shorter form of its own (`encoding_format: base64`). New API keys are among these
 * answers too. Only reads are left. No browser sends their credential by itself, so an attacker
 * cannot have them repeated.
 */
export function compressAnswers(): ApiMiddleware {
  return async (context, next) => {
    await next()
    const text = context.body
    if (!isReading(context) || typeof text !== 'string') return
    if (!context.response.is('json', '+json', 'html', 'javascript', 'css')) return
    if (Buffer.byteLength(text) < COMPRESSED_BYTES_MIN || context.response.get('content-encoding'))
      return
    context.vary('accept-encoding')
    const coding = context.acceptsEncodings('br', 'gzip', 'identity')
    if (coding !== 'br' && coding !== 'gzip') return
    const type = context.response.get('content-type')
    context.body = await CODERS[coding](Buffer.from(text))
    // Bytes have another default type than text.
    context.set('content-type', type)
    context.set('content-encoding', coding)
  }
}

function isReading({ method, respond }: ApiContext): boolean {
  return respond !== false && (method === 'GET' || method === 'HEAD')
}

/**
 * Fast settings: at these, both take about as long as writing the answer does, and save most of
 * what can be saved.
 */
const CODERS = {
  br: (bytes: Uint8Array) =>
    promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } }),
  gzip: (bytes: Uint8Array) => promisify(gzip)(bytes, { level: 4 }),
} as const
