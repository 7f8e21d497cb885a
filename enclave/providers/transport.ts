import { createHash } from 'node:crypto'
import http, { type ClientRequest, type IncomingHttpHeaders, type IncomingMessage } from 'node:http'
import https from 'node:https'
import type { Socket } from 'node:net'
import { createSecureContext, TLSSocket } from 'node:tls'
import type { ReceiptTls } from '#attestation/receipt.ts'
import { CallFault } from '../call-fault.ts'
import { credentialHeader } from '../protocol/choose-provider.ts'
import type { ProviderEndpoint, ProviderEntry } from '../protocol/enclave-api.ts'

/**
 * How long an unused connection is kept, milliseconds. Servers close unused connections after 5 s
 * or more. The enclave closes them earlier, because a call on a closed connection fails, and a
 * completion must not be made twice.
 */
export const IDLE_CONNECTION_MS = 4_000

/** Maximum number of unused connections per origin. */
const IDLE_CONNECTIONS_MAX = 256

type ProviderCall = {
  readonly provider: ProviderEntry
  readonly endpoint: ProviderEndpoint
  /** Sent in the header that the endpoint requires. Null: no credential is sent. */
  readonly credential: string | null
  /** The caller's headers that the dialect forwards, by their lower-case names. */
  readonly headers: Readonly<Record<string, string>>
  /** Each defined list must contain the key of the leaf certificate (ReceiptTls.spki_sha256). */
  readonly keys: readonly (readonly string[] | undefined)[]
  readonly body: Uint8Array
  readonly isStream: boolean
  /** Aborts the call at any time. Its reason is a CallFault or CallerGone. */
  readonly cancel: AbortController
  /** Called when the connection is ready. From now on, the provider can receive the call. */
  readonly onConnected: () => void
}

/** The head of a provider's answer, with the unread body. All of it is attacker-controlled. */
export type ProviderAnswer = {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  /** Null over plain http. */
  readonly tls: ReceiptTls | null
  readonly body: IncomingMessage
}

export type Transport = {
  /**
   * Sends a call and returns the answer's head, with any status. Redirects are not followed, and
   * nothing is sent twice. Throws CallFault `provider_unreachable` (DNS, connect, TLS),
   * `provider_key_mismatch` (nothing was sent), `provider_timeout` (no connection in time),
   * `provider_error` (connection lost, or not HTTP), or the reason of a cancel.
   */
  readonly send: (call: ProviderCall) => Promise<ProviderAnswer>
  /** Closes the unused connections. Running calls are lost. */
  readonly close: () => void
}

/**
 * Makes the transport, which reuses connections. TLS is 1.2 or newer, verified against `cas` (PEM)
 * and the origin's host name. NODE_TLS_REJECT_UNAUTHORIZED and NODE_EXTRA_CA_CERTS have no effect.
 * TLS sessions are not resumed, so each connection's evidence comes from a full handshake.
 */
export function createTransport(options: {
  readonly cas: string
  readonly connectTimeoutMs: number
}): Transport {
  const pool = {
    keepAlive: true,
    timeout: IDLE_CONNECTION_MS,
    maxFreeSockets: IDLE_CONNECTIONS_MAX,
  }
  // Parsed only once, because this takes milliseconds.
  const secureContext = createSecureContext({ ca: options.cas, minVersion: 'TLSv1.2' })
  const plainAgent = new http.Agent(pool)
  const tlsAgent = new https.Agent({
    ...pool,
    secureContext,
    rejectUnauthorized: true,
    maxCachedSessions: 0,
  })
  return {
    send: async (call) => {
      const url = new URL(call.provider.origin + call.endpoint.path)
      const head = { method: 'POST', headers: requestHeaders(call) }
      const isTls = url.protocol === 'https:'
      for (;;) {
        const request = isTls
          ? https.request(url, { ...head, agent: tlsAgent })
          : http.request(url, { ...head, agent: plainAgent })
        const answer = await exchange(request, call, options.connectTimeoutMs)
        if (answer !== 'other_key') return answer
      }
    },
    close: () => {
      plainAgent.destroy()
      tlsAgent.destroy()
    },
  }
}

/**
 * Returns the headers for a provider, except Host and Connection. Includes only those headers of
 * the caller that are hashed.
 */
function requestHeaders(call: ProviderCall): Record<string, string> {
  const { endpoint, credential, headers, body, isStream } = call
  return {
    ...headers,
    accept: isStream ? 'text/event-stream' : 'application/json',
    'accept-encoding': 'identity',
    'content-type': 'application/json',
    'content-length': String(body.length),
    'user-agent': 'affidavit',
    ...credentialHeader(endpoint, credential),
  }
}

/** Sends a call. Returns `other_key` if a reused connection has a key that is not accepted. */
async function exchange(
  request: ClientRequest,
  call: ProviderCall,
  connectTimeoutMs: number,
): Promise<ProviderAnswer | 'other_key'> {
  const { provider, cancel, onConnected } = call
  let isConnected = false
  let timer: NodeJS.Timeout | undefined
  try {
    const body = await new Promise<IncomingMessage | 'other_key'>((resolve, reject) => {
      // Writes nothing until the key is checked, because the head is sent with the body.
      const send = (socket: Socket) => {
        clearTimeout(timer)
        if (!hasAcceptedKey(socket, call.keys)) {
          request.destroy()
          return request.reusedSocket ? resolve('other_key') : reject(keyMismatch(provider))
        }
        isConnected = true
        onConnected()
        request.end(call.body)
      }
      request.once('socket', (socket) => {
        if (request.reusedSocket) return send(socket)
        timer = setTimeout(() => {
          const message = `Provider ${provider.name} did not accept a connection in time.`
          cancel.abort(new CallFault('provider_timeout', message))
        }, connectTimeoutMs)
        const event = socket instanceof TLSSocket ? 'secureConnect' : 'connect'
        socket.once(event, () => send(socket))
      })
      // Rejects here, because in some states (after an upgrade) a destroyed request emits no error.
      const abandon = () => {
        request.destroy()
        reject(cancel.signal.reason)
      }
      cancel.signal.addEventListener('abort', abandon)
      if (cancel.signal.aborted) abandon()
      // The listener stays until the request ends, because errors can follow the answer's head.
      request.on('error', (error) => reject(toFault(error, { provider, isConnected })))
      request.on('upgrade', (_, socket) => {
        socket.destroy()
        reject(new CallFault('provider_error', `Provider ${provider.name} switched protocols.`))
      })
      request.once('response', resolve)
    })
    return body === 'other_key' ? body : readHead(body)
  } finally {
    clearTimeout(timer)
  }
}

/** True if each list contains the key of the connection. Plain http has no key. */
function hasAcceptedKey(socket: Socket, keys: ProviderCall['keys']): boolean {
  // Read for every call, because an answer can destroy the socket, which then has no certificate.
  const key = socket instanceof TLSSocket ? tlsEvidence(socket).spki_sha256 : ''
  return keys.every((list) => list === undefined || list.includes(key))
}

function keyMismatch({ name }: ProviderEntry): CallFault {
  return new CallFault(
    'provider_key_mismatch',
    `Provider ${name} has another TLS key than the call or the provider table accepts. Nothing was sent.`,
  )
}

function readHead(body: IncomingMessage): ProviderAnswer {
  const { socket } = body
  return {
    status: body.statusCode ?? 0,
    headers: body.headers,
    tls: socket instanceof TLSSocket ? tlsEvidence(socket) : null,
    body,
  }
}

function toFault(
  error: Error & { readonly code?: unknown },
  call: { readonly provider: ProviderEntry; readonly isConnected: boolean },
): CallFault {
  // Only the code is used: messages of network errors can repeat what the provider sent.
  const code = typeof error.code === 'string' ? error.code : 'unknown error'
  return call.isConnected
    ? new CallFault(
        'provider_error',
        `Provider ${call.provider.name} broke the connection off (${code}).`,
      )
    : new CallFault(
        'provider_unreachable',
        `Provider ${call.provider.name} cannot be reached (${code}).`,
      )
}

/** Maximum length of a distinguished name in a receipt, characters. Longer names are cut. */
const NAME_CHARACTERS_MAX = 1024

/**
 * Returns the identity of a connection's other side for the receipt: negotiated protocol, SHA-256
 * of the leaf certificate's subjectPublicKeyInfo, subject and issuer on one line. Read once per
 * connection. Throws if Node.js did not verify the socket (rejectUnauthorized). Shows which key
 * answered, NOT what produced the answer (a CDN can have the key).
 */
function tlsEvidence(socket: TLSSocket): ReceiptTls {
  const known = evidenceBySocket.get(socket)
  if (known) return known
  const certificate = socket.getPeerX509Certificate()
  if (!socket.authorized || certificate === undefined)
    throw new Error('expected a TLS connection whose certificate was verified')
  const spki = certificate.publicKey.export({ type: 'spki', format: 'der' })
  const evidence: ReceiptTls = {
    protocol: socket.getProtocol() ?? 'unknown',
    spki_sha256: createHash('sha256').update(spki).digest('hex'),
    subject: toOneLine(certificate.subject),
    issuer: toOneLine(certificate.issuer),
  }
  evidenceBySocket.set(socket, evidence)
  return evidence
}

const evidenceBySocket = new WeakMap<TLSSocket, ReceiptTls>()

/**
 * Joins a name's lines. Node.js writes one attribute per line, and escapes commas and line breaks
 * in each (RFC 2253).
 */
function toOneLine(name: string | undefined): string {
  return (name ?? '')
    .split('\n')
    .join(', ')
    .toWellFormed()
    .slice(0, NAME_CHARACTERS_MAX)
    .toWellFormed()
}
