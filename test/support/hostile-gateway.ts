import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import {
  ENCAPSULATED_KEY_HEADER,
  NOTARY_HEADER,
  RESPONSE_NONCE_HEADER,
} from '../../attestation/ehbp.ts'

/** An answer of a gateway, read whole. */
export type GatewayAnswer = {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  /** In the pieces in which it is written; an iterator may go on for ever. */
  readonly body: string | Uint8Array | AsyncIterable<string | Uint8Array>
  /** What comes after the body; default its end. `cut` breaks the connection, `stall` says no more. */
  readonly after?: 'end' | 'cut' | 'stall'
}

/** One call that passes, and the means of who stands in between. */
export type PassingCall = {
  readonly path: string
  readonly query: URLSearchParams
  /** Those of its headers that the real gateway is shown. */
  readonly headers: Readonly<Record<string, string>>
  /** As the client sent it, an encrypted one as Latin-1; empty for a GET. */
  readonly body: string
  /**
   * Asks the real gateway the same, or with another body, or with other headers beside its own: an
   * empty one is left out.
   */
  ask(body?: string, headers?: Readonly<Record<string, string>>): Promise<GatewayAnswer>
  /** Asks the real gateway for something else. */
  get(path: string): Promise<GatewayAnswer>
}

/** What the hostile gateway does to calls of one kind; the others pass as they are. */
export type Attack = {
  readonly meets: 'completions' | 'documents' | 'both' | 'evidence'
  /** Answers in place of the real gateway, or with what it answered. */
  answer(call: PassingCall): GatewayAnswer | Promise<GatewayAnswer>
}

/** A server between client and gateway that alters what passes. */
export type HostileGateway = {
  readonly url: string
  /** From now on this is done; null passes everything on as it is. */
  set(attack: Attack | null): void
  /** Whether streams are written event by event, as they come from a model. Default: in one piece. */
  pace(isPaced: boolean): void
  /** Since `set`: calls of the attack's kind that came, and those that were answered otherwise. */
  counts(): { readonly met: number; readonly altered: number }
  stop(): Promise<void>
}

const COMPLETIONS = '/v1/verified/chat/completions'
const DOCUMENTS = ['/v1/notaries', '/v1/attestation']

/** Headers of a call that the real gateway is shown. */
const FORWARDED = [
  ...['authorization', 'content-type', 'accept', 'idempotency-key', 'fine-tune-authorization'],
  ...[ENCAPSULATED_KEY_HEADER, NOTARY_HEADER],
]

/** Starts it before the gateway at `origin`, on loopback, honest at first. */
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
  return (
    (meets !== 'documents' && path === COMPLETIONS) ||
    (meets !== 'completions' && DOCUMENTS.includes(path))
  )
}

/** Of an attack on both, completions are counted. */
function isCounted({ meets }: Attack, { path }: PassingCall): boolean {
  return meets !== 'both' || path === COMPLETIONS
}

/**
 * Watches what an attack does: it altered nothing when it asked the real gateway once, with the
 * client's own body, and passed on what came. So no attack can be counted that was none.
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

/** Long enough that the reader has read before more comes; he need not have, for any test to hold. */
const PACE_MS = 2

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
    // No more than the reader takes.
    if (!response.write(piece))
      await Promise.race([once(response, 'drain'), once(response, 'close')])
    if (isSplit) await sleep(PACE_MS)
  }
  if (after === 'end') response.end()
  // What was written is to arrive before the break does.
  if (after === 'cut') setTimeout(() => response.destroy(), 20)
}
