import { createHash } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { request } from 'node:https'
import { isIP } from 'node:net'
import { connect, TLSSocket } from 'node:tls'
import type { KeptResponse } from '#attestation/providers/evidence/evidence-document.ts'

export type FetchFaultCode =
  | 'refused' //          any status except 200; redirects are not followed
  | 'unreachable' //      no connection, or no valid certificate, or a cut answer
  | 'timeout'
  | 'answer_too_large'
  | 'bad_answer' //       a content coding other than `identity`

/** A request got no usable answer. */
export class FetchFault extends Error {
  readonly code: FetchFaultCode

  constructor(code: FetchFaultCode, message: string, cause?: unknown) {
    super(message, { cause })
    this.name = 'FetchFault'
    this.code = code
  }
}

type FetchOptions = {
  /** PEM of the trusted certificate authorities. Null: the system's authorities. */
  readonly ca: readonly string[] | null
  readonly bytesMax: number
  readonly timeoutMs: number
  readonly signal: AbortSignal
  /** Called with the key of the connection (SHA-256, hex), after the certificate was checked. */
  readonly onKey?: (spkiSha256: string) => void
}

/** Headers that a check of evidence reads. */
const KEPT_HEADERS = ['tcb-info-issuer-chain', 'sgx-enclave-identity-issuer-chain']

/**
 * Sends a GET request over a new TLS connection. Returns only an answer with status 200. Throws
 * FetchFault, or the reason of `signal`.
 */
export async function fetchOverTls(href: string, options: FetchOptions): Promise<KeptResponse> {
  const { timeoutMs, signal } = options
  signal.throwIfAborted()
  const timeout = AbortSignal.timeout(timeoutMs)
  try {
    return await fetchUntil(href, options, AbortSignal.any([signal, timeout]))
  } catch (error) {
    signal.throwIfAborted()
    if (timeout.aborted)
      throw new FetchFault('timeout', `expected a complete answer within ${timeoutMs} ms`)
    if (error instanceof FetchFault) throw error
    throw new FetchFault('unreachable', `broken off (${codeOf(error)})`, error)
  }
}

/**
 * Returns the TLS key (SHA-256, hex) of an https origin, from a new connection whose certificate
 * was checked. Throws FetchFault `unreachable`, or the reason of `signal`.
 */
export async function readTlsKey(
  origin: string,
  { ca, timeoutMs, signal }: Omit<FetchOptions, 'bytesMax' | 'onKey'>,
): Promise<string> {
  const { hostname, port } = new URL(origin)
  const host = hostname.replace(/^\[|\]$/g, '')
  const socket = connect({
    host,
    port: Number(port || 443),
    servername: isIP(host) === 0 ? host : '',
    ca: ca?.slice(),
  })
  try {
    const until = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)])
    await once(socket, 'secureConnect', { signal: until })
    return keyOf(socket)
  } catch (error) {
    signal.throwIfAborted()
    throw new FetchFault('unreachable', `no connection (${codeOf(error)})`, error)
  } finally {
    socket.on('error', () => {})
    socket.destroy()
  }
}

async function fetchUntil(
  href: string,
  { ca, bytesMax, onKey }: FetchOptions,
  signal: AbortSignal,
): Promise<KeptResponse> {
  const asked = request(href, {
    // Each request has its own connection, so the holder of that connection's TLS key answers.
    agent: false,
    ca: ca?.slice(),
    signal,
    headers: {
      accept: 'application/json, */*',
      'accept-encoding': 'identity',
      'user-agent': 'affidavit',
    },
  })
  // Ignored, because faults after the answer's head are also reported by the answer's stream.
  asked.on('error', () => {})
  asked.on('socket', (socket) => {
    if (socket instanceof TLSSocket) socket.once('secureConnect', () => onKey?.(keyOf(socket)))
  })
  try {
    const answered = once(asked, 'response', { signal })
    asked.end()
    const [response] = (await answered) as [IncomingMessage]
    const { statusCode = 0, headers } = response
    if (statusCode !== 200)
      throw new FetchFault('refused', `expected status 200, got ${statusCode}`)
    if ((headers['content-encoding'] ?? 'identity') !== 'identity')
      throw new FetchFault('bad_answer', 'expected an answer without content coding')
    const body = await readBody(response, bytesMax)
    const kept = KEPT_HEADERS.flatMap((name) => {
      const value = headers[name]
      return typeof value === 'string' ? [[name, value] as const] : []
    })
    return { url: href, status: 200, headers: new Map(kept), body }
  } finally {
    asked.destroy()
  }
}

async function readBody(response: IncomingMessage, bytesMax: number) {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of response) {
    length += chunk.length
    if (length > bytesMax)
      throw new FetchFault('answer_too_large', `expected at most ${bytesMax} bytes`)
    chunks.push(chunk)
  }
  return new Uint8Array(Buffer.concat(chunks))
}

/** The key as receipts name it (enclave/providers/transport.ts). */
function keyOf(socket: TLSSocket): string {
  const certificate = socket.getPeerX509Certificate()
  if (certificate === undefined) throw new TypeError('expected the certificate of a TLS server')
  const spki = certificate.publicKey.export({ type: 'spki', format: 'der' })
  return createHash('sha256').update(spki).digest('hex')
}

function codeOf(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : undefined
  return typeof code === 'string' ? code : 'unknown fault'
}
