import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { encodeHex, encodeUtf8 } from '#attestation/bytes.ts'
import { assembleCompletion } from '#attestation/dialects/chat/assemble-completion.ts'
import { ENCAPSULATED_KEY_HEADER } from '#attestation/ehbp.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { parseProviderPolicy } from '#attestation/providers/evidence/provider-policy.ts'
import type { Receipt } from '#attestation/receipt.ts'
import { hashChunks } from '#attestation/record-hash.ts'
import { readEnclavesPolicy } from '#attestation/report/policy-file.ts'
import { createCheckedFetch } from '#client/checked-fetch.ts'
import type { Fetch } from '#client/gateway.ts'
import { createNotaries, type Notaries } from '#client/notaries.ts'
import { createProofs, type Proof, type Proofs } from '#client/proof.ts'
import { createProviders, type Providers } from '#client/providers.ts'
import type { Rpc } from '#client/rpc.ts'
import type { SessionTurns } from '#client/session.ts'
import { buildRecord, CHAIN_ID, CONTRACT, NOTARY } from '../attestation/build-record.ts'
import { CHUNKS } from '../attestation/kept-streams.ts'
import { buildChain, type Chain, MADE_AT } from '../support/nitro-builder/development-pki.ts'
import {
  buildDocument,
  type Fields,
  PCR_VALUES,
} from '../support/nitro-builder/document-builder.ts'
import {
  createMemoryEnclave,
  type MemoryEnclave,
  type OpenedCall,
  passOn,
  type SealedAnswer,
} from './memory-enclave.ts'

const URL_OF_GATEWAY = 'https://gateway.example'
export const ADDRESS = NOTARY.address.toLowerCase()
const PUBLIC_KEY = Buffer.from(NOTARY.signingKey.publicKey.slice(2), 'hex')
const CHAIN = buildChain()
const CONFIGURATION = {
  chain_id: CHAIN_ID,
  contract: CONTRACT,
  providers: [{ name: 'demo', origin: 'https://provider.example' }],
}

/** What a gateway does otherwise than an honest one, in a place each. Nothing: it is honest. */
export type Attack = {
  readonly notaries?: Json
  readonly configuration?: JsonObject
  readonly chain?: Chain
  /** Fields of documents over a nonce. */
  readonly fields?: Fields
  /** Fields of the document that answers carry. */
  readonly answersFields?: Fields
  /** Members of the request that the enclave is asked with, and what it then states. */
  readonly request?: (request: JsonObject) => JsonObject
  readonly response?: (response: JsonObject) => JsonObject
  readonly receipt?: Partial<Receipt>
  /** The answer, or its chunks, as they are given. */
  readonly answer?: (answer: JsonObject) => Json
  readonly chunks?: (chunks: readonly JsonObject[]) => readonly Json[]
  /** The text of the answer. */
  readonly text?: (text: string) => string
  readonly respond?: (text: string, headers: Record<string, string>) => Response
  /** What it says of the keys of its enclave, instead of the enclave's own statement. */
  readonly keys?: (enclave: MemoryEnclave, nowSeconds: number) => Json
  /** Answers an encrypted call in the enclave's place. `count`: from 1. Null: the enclave is asked. */
  readonly intercept?: (count: number, sent: SentBytes) => Response | null
  /** Answers an encrypted call that the enclave opened: null for what it answers itself. */
  readonly fault?: (opened: OpenedCall) => Response | null
  /** The encrypted answer, as it is given. */
  readonly sealed?: (answer: SealedAnswer) => SealedAnswer
  readonly passOn?: (answer: SealedAnswer, type: string) => Response
  /** Answers a request for providers or for their evidence. */
  readonly providers?: (path: string) => Response
}

/** An encrypted call as it was on the wire. */
export type SentBytes = { readonly headers: Headers; readonly body: Buffer }

/** A client of one gateway in memory. `attack` may be changed between calls. */
export type MemoryClient = {
  readonly fetch: Fetch
  readonly url: string
  readonly notaries: Notaries
  readonly providers: Providers | null
  readonly proofs: Proofs
  attack: Attack
  nowMs: number
  /** Paths that were asked for. */
  readonly asked: string[]
  /** Bodies of calls, as the gateway got them, and as the enclave opened those that are encrypted. */
  readonly bodies: string[]
  /** Encrypted calls as they were sent, and what the enclave opened of them. */
  readonly sent: SentBytes[]
  readonly opened: OpenedCall[]
  readonly enclave: MemoryEnclave
  /** Bytes of all that the gateway gave. */
  readonly given: Uint8Array[]
}

/**
 * Gives a client and, behind it, a gateway with an enclave whose signatures are real, at the time
 * at which the documents were made.
 */
export function openMemoryClient(
  attack: Attack = {},
  {
    encrypt = false,
    hold = false,
    policies,
    rpc = null,
    session = null,
    keep = () => undefined,
  }: {
    readonly encrypt?: boolean
    readonly hold?: boolean
    readonly session?: SessionTurns | null
    /** Keeps the proof of a call before its answer is given. */
    readonly keep?: (proof: Proof) => void | Promise<void>
    /** Policies of attested providers. */
    readonly policies?: readonly object[]
    /** The chain of the nonces of their evidence. */
    readonly rpc?: Rpc | null
  } = {},
): MemoryClient {
  const client: { attack: Attack; nowMs: number } = { attack, nowMs: MADE_AT.getTime() + 1_000 }
  const asked: string[] = []
  const bodies: string[] = []
  const kept = { sent: [] as SentBytes[], opened: [] as OpenedCall[], given: [] as Uint8Array[] }
  const enclave = createMemoryEnclave()
  const listKeys = () => {
    const now = Math.floor(client.nowMs / 1000)
    const own = [enclave.state({ notBefore: now - 60, notAfter: now + 3_600 })]
    return client.attack.keys?.(enclave, now) ?? own
  }
  const gateway: Fetch = async (input, init) => {
    const url = new URL(String(input))
    asked.push(url.pathname)
    if (url.pathname === '/v1/notaries')
      return reply(
        client.attack.notaries ?? { notaries: [{ notary: ADDRESS, encryption_keys: listKeys() }] },
      )
    if (url.pathname === '/v1/attestation') {
      const nonce = Buffer.from(url.searchParams.get('nonce') ?? '', 'hex')
      return reply(attest(client.attack, { nonce, ...client.attack.fields }))
    }
    if (url.pathname.startsWith('/v1/providers'))
      return client.attack.providers?.(url.pathname) ?? new Response('{}', { status: 404 })
    init?.signal?.throwIfAborted()
    const headers = new Headers(init?.headers)
    const sent = { headers, body: Buffer.from(init?.body as Uint8Array) }
    if (!headers.has(ENCAPSULATED_KEY_HEADER)) {
      bodies.push(sent.body.toString())
      return answerCall(client.attack, JSON.parse(sent.body.toString()))
    }
    kept.sent.push(sent)
    const [passed, copy] = tee(
      client.attack.intercept?.(kept.sent.length, sent) ?? (await serve(sent)),
    )
    void collect(copy, kept.given)
    return passed
  }

  async function serve({ headers, body }: SentBytes): Promise<Response> {
    const opened = enclave.open(headers, body)
    kept.opened.push(opened)
    bodies.push(opened.body)
    const { attack: current } = client
    const fault = current.fault?.(opened) ?? null
    if (fault !== null) return fault
    const receipt = { encrypted: true, ...current.receipt }
    const answer = answerCall({ ...current, receipt }, JSON.parse(opened.body))
    const type = answer.headers.get('content-type') ?? ''
    const sealed = opened.seal(cut(await answer.text()))
    const altered = current.sealed?.(sealed) ?? sealed
    return current.passOn?.(altered, type) ?? passOn(altered, { type })
  }
  const now = () => client.nowMs
  const configurations = createHash('sha256')
    .update(String(canonicalize(CONFIGURATION)))
    .digest('hex')
  const roots = encodeHex(CHAIN.rootSha256)
  const enclaves = { measurements: [PCR_VALUES], configurations, roots }
  const policy = readEnclavesPolicy({ enclaves }) ?? {}
  const options = { url: URL_OF_GATEWAY, apiKey: null, fetch: gateway, timeoutMs: 10_000 }
  const notaries = createNotaries(options, { policy, now })
  const parsed = policies?.map((one) => parseProviderPolicy(encodeUtf8(JSON.stringify(one))))
  const providers =
    parsed === undefined ? null : createProviders(options, { policies: parsed, rpc, now })
  const { proofs, add, bind } = createProofs(100)
  const fetch = createCheckedFetch({
    baseURL: `${URL_OF_GATEWAY}/v1/verified`,
    fetch: gateway,
    notaries,
    providers,
    now,
    keep: async (proof) => {
      await keep(proof)
      add(proof)
    },
    bind,
    encrypt,
    hold,
    session,
    bytesMax: 1_000_000,
  })
  return Object.assign(client, {
    fetch,
    notaries,
    providers,
    proofs,
    asked,
    bodies,
    enclave,
    ...kept,
    url: `${URL_OF_GATEWAY}/v1/verified/chat/completions`,
  })
}

/** Texts of the frames of an answer: an event each, or a few pieces. */
function cut(text: string): readonly string[] {
  if (text.startsWith('data: ')) return text.split(/(?<=\n\n)/)
  const length = Math.ceil(text.length / FRAMES_OF_WHOLE)
  return Array.from({ length: FRAMES_OF_WHOLE }, (_, at) =>
    text.slice(at * length, (at + 1) * length),
  )
}
const FRAMES_OF_WHOLE = 4

function tee(response: Response): readonly [Response, Response | null] {
  return response.body === null || response.headers.has('x-endless')
    ? [response, null]
    : [response, response.clone()]
}

async function collect(copy: Response | null, given: Uint8Array[]): Promise<void> {
  if (copy !== null) given.push(new Uint8Array(await copy.arrayBuffer()))
}

const reply = (value: unknown) =>
  new Response(JSON.stringify(value), { headers: { 'content-type': 'application/json' } })

function attest({ chain = CHAIN, configuration = CONFIGURATION }: Attack, fields: Fields) {
  return {
    attestation: documentOf({ chain, configuration }, fields),
    public_key: NOTARY.signingKey.publicKey,
    notary: ADDRESS,
    boot_configuration: configuration,
  }
}

function documentOf(
  { chain, configuration }: { readonly chain: Chain; readonly configuration: JsonObject },
  fields: Fields,
): string {
  const userData = createHash('sha256')
    .update(String(canonicalize(configuration)))
    .digest()
  return Buffer.from(
    buildDocument({
      chain,
      fields: { public_key: PUBLIC_KEY, user_data: userData, nonce: undefined, ...fields },
    }),
  ).toString('base64')
}

function answerCall(attack: Attack, sent: JsonObject): Response {
  const { chain = CHAIN, configuration = CONFIGURATION } = attack
  const request = attack.request?.(sent) ?? sent
  const isStream = request.stream === true
  const whole = assembleCompletion(CHUNKS)
  const response = attack.response?.(whole) ?? whole
  const { created } = buildRecord({
    request,
    response,
    streamHash: isStream ? hashChunks(CHUNKS) : null,
    ...(attack.receipt === undefined ? {} : { receipt: attack.receipt }),
  })
  const attestation = documentOf({ chain, configuration }, attack.answersFields ?? {})
  const proven = { ...created, attestation }
  if (!isStream) {
    const answer = attack.answer?.(proven) ?? proven
    return respond(attack, JSON.stringify(answer), 'application/json')
  }
  const proof = Object.fromEntries(
    Object.entries(proven).filter(([name]) => !Object.hasOwn(response, name)),
  )
  const given = CHUNKS.with(-1, { ...CHUNKS.at(-1), ...proof })
  const events = [
    ...(attack.chunks?.(given) ?? given).map((chunk) => JSON.stringify(chunk)),
    '[DONE]',
  ]
  return respond(
    attack,
    events.map((event) => `data: ${event}\n\n`).join(''),
    'text/event-stream; charset=utf-8',
  )
}

function respond({ text: alter, respond: answer }: Attack, text: string, type: string): Response {
  const altered = alter?.(text) ?? text
  const headers = { 'content-type': type }
  return answer?.(altered, headers) ?? new Response(altered, { headers })
}
