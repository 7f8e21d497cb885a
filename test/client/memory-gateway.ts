import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { assembleCompletion } from '../../attestation/assemble-completion.ts'
import { encodeHex } from '../../attestation/bytes.ts'
import { hashChunks } from '../../attestation/completion-hash.ts'
import type { Json, JsonObject } from '../../attestation/json/value.ts'
import type { ReceiptV2 } from '../../attestation/receipt.ts'
import { createCheckedFetch } from '../../client/checked-fetch.ts'
import { readExpectations } from '../../client/expectations.ts'
import type { Fetch } from '../../client/gateway.ts'
import { createNotaries, type Notaries } from '../../client/notaries.ts'
import { createProofs, type Proofs } from '../../client/proof.ts'
import { buildRecord, CHAIN_ID, CONTRACT, NOTARY } from '../attestation/build-record.ts'
import { CHUNKS } from '../attestation/kept-streams.ts'
import { buildChain, type Chain, MADE_AT } from '../support/nitro-builder/development-pki.ts'
import {
  buildDocument,
  type Fields,
  PCR_VALUES,
} from '../support/nitro-builder/document-builder.ts'

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
  readonly receipt?: Partial<ReceiptV2>
  /** The answer, or the chunks of it, as they are given. */
  readonly answer?: (answer: JsonObject) => Json
  readonly chunks?: (chunks: readonly JsonObject[]) => readonly Json[]
  /** The text of the answer. */
  readonly text?: (text: string) => string
  readonly respond?: (text: string, headers: Record<string, string>) => Response
}

/** A client of one gateway in memory. `attack` may be changed between calls. */
export type MemoryClient = {
  readonly fetch: Fetch
  readonly url: string
  readonly notaries: Notaries
  readonly proofs: Proofs
  attack: Attack
  nowMs: number
  /** Paths that were asked for. */
  readonly asked: string[]
  /** Bodies of calls, as the gateway got them. */
  readonly bodies: string[]
}

/**
 * Gives a client and, behind it, a gateway with an enclave whose signatures are real, at the time
 * at which the documents were made.
 */
export function openMemoryClient(attack: Attack = {}): MemoryClient {
  const client: { attack: Attack; nowMs: number } = { attack, nowMs: MADE_AT.getTime() + 1_000 }
  const asked: string[] = []
  const bodies: string[] = []
  const gateway: Fetch = async (input, init) => {
    const url = new URL(String(input))
    asked.push(url.pathname)
    if (url.pathname === '/v1/notaries')
      return reply(client.attack.notaries ?? { notaries: [{ notary: ADDRESS }] })
    if (url.pathname === '/v1/attestation') {
      const nonce = Buffer.from(url.searchParams.get('nonce') ?? '', 'hex')
      return reply(attest(client.attack, { nonce, ...client.attack.fields }))
    }
    const body = Buffer.from(init?.body as Uint8Array).toString()
    bodies.push(body)
    return answerCall(client.attack, JSON.parse(body))
  }
  const now = () => client.nowMs
  const policy = readExpectations(
    {
      measurements: [PCR_VALUES],
      configurations: createHash('sha256')
        .update(String(canonicalize(CONFIGURATION)))
        .digest('hex'),
    },
    { roots: encodeHex(CHAIN.rootSha256) },
  )
  const options = { url: URL_OF_GATEWAY, apiKey: null, fetch: gateway, timeoutMs: 10_000 }
  const notaries = createNotaries(options, { policy, now })
  const { proofs, add } = createProofs(100)
  const fetch = createCheckedFetch({
    ...{ baseURL: `${URL_OF_GATEWAY}/v1/verified`, fetch: gateway, notaries, now, keep: add },
    ...{ encrypt: false, hold: false, bytesMax: 1_000_000 },
  })
  return Object.assign(client, {
    ...{ fetch, notaries, proofs, asked, bodies },
    url: `${URL_OF_GATEWAY}/v1/verified/chat/completions`,
  })
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
    ...{ request, response, streamHash: isStream ? hashChunks(CHUNKS) : null },
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
