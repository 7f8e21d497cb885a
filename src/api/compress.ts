import { promisify } from 'node:util'
import { brotliCompress, constants, gzip } from 'node:zlib'
import type { ApiContext, ApiMiddleware } from './context.ts'

/** Shorter answers fit into one or two packets, so they are not compressed. */
export const COMPRESSED_BYTES_MIN = 2_048

/**
 * Compresses long JSON answers to GET and HEAD off the event loop, with brotli or gzip as the
 * client accepts (RFC 9110, 12.5.3). Use it outside the middleware that answers errors. Streams are
 * not compressed, because that would delay events. Answers to POST are not compressed: the
 * compressed length of an attacker's text beside a secret (a customer's text, a new API key)
 * reveals the secret (BREACH). An attacker cannot repeat GET and HEAD, because browsers do not send
 * the API key by themselves.
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
    // Koa sets another type for bytes.
    context.set('content-type', type)
    context.set('content-encoding', coding)
  }
}

function isReading({ method, respond }: ApiContext): boolean {
  return respond !== false && (method === 'GET' || method === 'HEAD')
}

/** Fast settings: each coding takes about as long as writing the answer. */
const CODERS = {
  br: (bytes: Uint8Array) =>
    promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } }),
  gzip: (bytes: Uint8Array) => promisify(gzip)(bytes, { level: 4 }),
} as const
