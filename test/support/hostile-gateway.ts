import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { DEMANDS_HEADER } from '#attestation/dialects/call-request.ts'
import { DIALECT_HEADERS } from '#attestation/dialects/dialect-names.ts'
import { ENCAPSULATED_KEY_HEADER, NOTARY_HEADER, RESPONSE_NONCE_HEADER } from '#attestation/ehbp.ts'
import { CALL_DIALECTS } from '#client/call-dialects.ts'

/** An answer of a gateway, read whole. */
export type GatewayAnswer = {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** In the pieces in which it is written; an iterator may never end. */
  readonly body: string | Uint8Array | AsyncIterable<string | Uint8Array>
  /**
   * What follows the body; default its end. `cut` breaks the connection, `stall` leaves it open.
   */
  readonly after?: 'end' | 'cut' | 'stall'
}

/** One call that passes, and what the attacker in between can do. */
export type PassingCall = {
  readonly path: string
  readonly query: URLSearchParams
  /** The call's headers that the real gateway gets. */
  readonly headers: Readonly<Record<string, string>>
  /** As the client sent it, an encrypted one as Latin-1; empty for a GET. */
  readonly body: string
  /**
   * Sends the call to the real gateway, with the same body or another one. `headers` are added; an
   * empty one is left out.
   */
  ask(body?: string, headers?: Readonly<Record<string, string>>): Promise<GatewayAnswer>
  /** Gets another path from the real gateway. */
  get(path: string): Promise<GatewayAnswer>
}

/** What the hostile gateway does to calls of one kind; the others pass unchanged. */
export type Attack = {
  readonly meets: 'completions' | 'documents' | 'both' | 'evidence' | 'providers'
  /** Answers in place of the real gateway, or with the real gateway's answer. */
  answer(call: PassingCall): GatewayAnswer | Promise<GatewayAnswer>
}

/** A server between client and gateway that alters what passes. */
export type HostileGateway = {
  readonly url: string
  /** Starts this attack; null passes every call on unchanged. */
  set(attack: Attack | null): void
  /** Whether streams are written event by event, as a model sends them. Default: in one piece. */
  pace(isPaced: boolean): void
  /** Since `set`: how many calls of the attack's kind came, and how many got an altered answer. */
  counts(): { readonly met: number; readonly altered: number }
  stop(): Promise<void>
}

const COMPLETIONS = CALL_DIALECTS.flatMap(({ paths }) => paths.map((path) => `/v1/verified${path}`))
const DOCUMENTS = ['/v1/notaries', '/v1/attestation']

/** The headers of a call that the real gateway gets. */
const FORWARDED = [
  'authorization',
  'x-api-key',
  'content-type',
  'accept',
  'idempotency-key',
  'fine-tune-authorization',
  ENCAPSULATED_KEY_HEADER,
  NOTARY_HEADER,
  DEMANDS_HEADER,
  ...Object.values(DIALECT_HEADERS).flat(),
]

/** Starts the server before the gateway at `origin`, on loopback, honest at first. */
export async function startHostileGateway(origin: string): Promise<HostileGateway> {
  let attack: Attack | null = null
  let isPaced = false
  let counts = { met: 0, altered: 0 }
  const serve = async (request: IncomingMessage, response: ServerResponse) => {
    const call = await readCall(request, origin)
    const current = attack
    if (current === null || !isMet(current, call)) return write(response, await call.ask(), isPaced)
    const isOne = isCounted(current, call) ? 1 : 0
    counts = { ...counts, met: counts.met + isOne }
    const witness = witnessOf(call)
    const answer = await current.answer(witness.call)
    if (!witness.passed(answer)) counts = { ...counts, altered: counts.altered + isOne }
    return write(response, answer, isPaced)
  }
  const server = createServer((request, response) => {
    serve(request, response).catch((fault: unknown) => {
      if (!response.headersSent) response.writeHead(599)
      response.end(`the hostile gateway failed: ${fault}`)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    set: (next) => {
      attack = next
      counts = { met: 0, altered: 0 }
    },
    pace: (next) => {
      isPaced = next
    },
    counts: () => counts,
    stop: async () => {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}

/** Does one thing to completions, and another to documents. */
export function both(completions: Attack, documents: Attack): Attack {
  return {
    meets: 'both',
    answer: (call) => (isMet(completions, call) ? completions : documents).answer(call),
  }
}

function isMet({ meets }: Attack, { path }: PassingCall): boolean {
  if (meets === 'evidence') return path.endsWith('/evidence')
  if (meets === 'providers') return path.startsWith('/v1/providers')
  return (
    (meets !== 'documents' && COMPLETIONS.includes(path)) ||
    (meets !== 'completions' && DOCUMENTS.includes(path))
  )
}

/** For an attack on both, completions are counted. */
function isCounted({ meets }: Attack, { path }: PassingCall): boolean {
  return meets !== 'both' || COMPLETIONS.includes(path)
}

/**
 * Watches what an attack does. It altered nothing if it asked the real gateway once, with the
 * client's own body, and passed the answer on. So an attack without an effect is not counted.
 */
function witnessOf(call: PassingCall): {
  readonly call: PassingCall
  passed(answer: GatewayAnswer): boolean
} {
  const asked: { readonly body: string; readonly answer: GatewayAnswer }[] = []
  return {
    call: {
      ...call,
      ask: async (body = call.body, headers = {}) => {
        const answer = await call.ask(body, headers)
        asked.push({ body, answer })
        return answer
      },
    },
    passed: (answer) =>
      asked.length === 1 &&
      asked[0]?.body === call.body &&
      isDeepStrictEqual(asked[0].answer, answer),
  }
}

async function readCall(request: IncomingMessage, origin: string): Promise<PassingCall> {
  const url = new URL(request.url ?? '/', origin)
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part)
  const encoding = ENCAPSULATED_KEY_HEADER in request.headers ? 'latin1' : 'utf8'
  const sent = Buffer.concat(parts).toString(encoding)
  const headers = FORWARDED.flatMap((name) => {
    const value = request.headers[name]
    return typeof value === 'string' ? [[name, value] as const] : []
  })
  const method = request.method ?? 'GET'
  return {
    path: url.pathname,
    query: url.searchParams,
    body: sent,
    headers: Object.fromEntries(headers),
    ask: (body = sent, more = {}) =>
      askReal(url, {
        method,
        headers: withoutEmpty({ ...Object.fromEntries(headers), ...more }),
        ...(method === 'GET' ? {} : { body: Buffer.from(body, encoding) }),
      }),
    get: (other) => askReal(new URL(other, origin), { headers: Object.fromEntries(headers) }),
  }
}

function withoutEmpty(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== ''))
}

async function askReal(url: URL, init: RequestInit): Promise<GatewayAnswer> {
  const reply = await fetch(url, init)
  const headers = ['content-type', RESPONSE_NONCE_HEADER].flatMap((name) => {
    const value = reply.headers.get(name)
    return value === null ? [] : [[name, value] as const]
  })
  const isEncrypted = reply.headers.has(RESPONSE_NONCE_HEADER)
  return {
    status: reply.status,
    headers: Object.fromEntries(headers),
    body: isEncrypted ? new Uint8Array(await reply.arrayBuffer()) : await reply.text(),
  }
}

/** Usually long enough for the reader to read before more comes; no test depends on it. */
const PACE_MS = 2

/** Waits until the reader has read the data, or has left. Leaves no listener behind. */
async function drained(response: ServerResponse): Promise<void> {
  const settled = new AbortController()
  const { signal } = settled
  await Promise.race([once(response, 'drain', { signal }), once(response, 'close', { signal })])
  settled.abort()
}

async function write(
  response: ServerResponse,
  { status, headers, body, after = 'end' }: GatewayAnswer,
  isPaced: boolean,
): Promise<void> {
  response.on('error', () => undefined)
  response.writeHead(status, headers)
  response.flushHeaders()
  const isSplit = isPaced && typeof body === 'string'
  const whole = typeof body === 'string' || body instanceof Uint8Array ? [body] : body
  for await (const piece of isSplit ? body.split(/(?<=\n\n)/) : whole) {
    if (response.destroyed) return
    // Not faster than the reader reads.
    if (!response.write(piece)) await drained(response)
    if (isSplit) await sleep(PACE_MS)
  }
  if (after === 'end') response.end()
  // The written bytes should arrive before the break does.
  if (after === 'cut') setTimeout(() => response.destroy(), 20)
}
