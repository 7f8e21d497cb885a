import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { Wallet } from 'ethers'
import OpenAI from 'openai'
import { recoverPublicKey } from '#attestation/account.ts'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { type Affidavit, connect } from '#client/index.ts'
import { type ForgedNotary, forgeNotary } from '../support/forged-notary.ts'
import type { ReadyAnswers } from './answer-server.ts'
import { quantile } from './load.ts'

/**
 * `node test/bench/client.ts`: the cost of checking for a caller, for each whole answer, each
 * stream and each chunk: `affidavit.fetch` against `fetch`, and the openai package with each of
 * them. Answers are made and signed beforehand. A worker thread serves them over loopback as fast
 * as it can; against a model that works on its answer, the overhead is a far smaller share. All are
 * measured in turns in one run. Figures are medians.
 */
const ROUNDS = 400
const WARM_UP_ROUNDS = 100
const CHUNKS = [20, 520]
const TEXT = 'an answer of some length, as models give them. '

const BOOT: JsonObject = {
  protocol_version: 2,
  providers: [
    {
      name: 'demo',
      origin: 'http://127.0.0.1:1',
      path: '/v1/chat/completions',
      models: ['demo/*'],
    },
  ],
  ca_sha256: '0'.repeat(64),
  chain_id: 31337,
  contract: `0x${'c0'.repeat(20)}`,
}

async function measureAll(): Promise<void> {
  const register = new Uint8Array(48).fill(1)
  const notary = await forgeNotary({
    rootFile: join(folder, 'root.pem'),
    measurements: { pcr0: register, pcr1: register, pcr2: register },
    boot: BOOT,
  })
  const { calls, answers } = await prepare(notary)
  const worker = new Worker(new URL('./answer-server.ts', import.meta.url), { workerData: answers })
  const [port] = (await once(worker, 'message')) as [number]
  try {
    const affidavit = await open(`http://127.0.0.1:${port}`, notary)
    for (const [kind, body] of calls) await compare(kind, { body, affidavit })
    report()
  } finally {
    await worker.terminate()
  }
}

/** The requests by kind, and the signed answers to them. */
async function prepare(notary: ForgedNotary): Promise<{
  readonly calls: ReadonlyMap<string, JsonObject>
  readonly answers: ReadyAnswers
}> {
  const calls = new Map<string, JsonObject>()
  const answers = new Map<string, { type: string; body: Uint8Array }>()
  const requestFor = (kind: string, more: JsonObject): JsonObject => {
    const nonce = encodeHex(crypto.getRandomValues(new Uint8Array(32)))
    const request = {
      model: 'demo/echo',
      messages: [{ role: 'user', content: TEXT.repeat(10) }],
      affidavit: { nonce, credential: 'operator' },
      ...more,
    }
    calls.set(kind, request)
    return request
  }
  const nonceOf = (request: JsonObject) => (request.affidavit as { nonce: string }).nonce
  for (const repeat of [1, 200]) {
    const request = requestFor(`whole, ${repeat * TEXT.length} characters`, {})
    const answer = await notary.answer({ request, response: responseOf(TEXT.repeat(repeat)) })
    answers.set(nonceOf(request), { type: 'application/json', body: utf8(JSON.stringify(answer)) })
  }
  for (const count of CHUNKS) {
    const request = requestFor(`stream, ${count} chunks`, { stream: true })
    const chunks = await notary.stream({ request, chunks: chunksOf(count) })
    const data = [...chunks.map((chunk) => JSON.stringify(chunk)), '[DONE]']
    const body = utf8(data.map((one) => `data: ${one}\n\n`).join(''))
    answers.set(nonceOf(request), { type: 'text/event-stream', body })
  }
  return { calls, answers }
}

const HEAD = { id: 'chatcmpl-1', created: 1_790_000_000, model: 'demo/echo' }

function responseOf(content: string): JsonObject {
  const message = { role: 'assistant', content, refusal: null }
  return {
    ...HEAD,
    object: 'chat.completion',
    choices: [{ index: 0, message, logprobs: null, finish_reason: 'stop' }],
    usage: { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 },
  }
}

function chunksOf(count: number): readonly JsonObject[] {
  return Array.from(
    { length: count },
    (_, at): JsonObject => ({
      ...HEAD,
      object: 'chat.completion.chunk',
      choices: [
        {
          index: 0,
          delta: { ...(at === 0 ? { role: 'assistant' } : {}), content: ' token' },
          logprobs: null,
          finish_reason: at === count - 1 ? 'stop' : null,
        },
      ],
      usage: null,
    }),
  )
}

/** A client of that server; it gets documents from the notary itself. */
async function open(url: string, notary: ForgedNotary): Promise<Affidavit> {
  return connect({
    url,
    encrypt: false,
    expect: {
      measurements: { PCR0: '01'.repeat(48), PCR1: '01'.repeat(48), PCR2: '01'.repeat(48) },
      configurations: BOOT,
    },
    roots: await readFile(join(folder, 'root.crt.pem'), 'utf8'),
    fetch: async (input, init) => {
      const { pathname, searchParams } = new URL(String(input))
      const nonce = searchParams.get('nonce')
      const entry = () => notary.entry(nonce === null ? null : decodeHex(nonce))
      if (pathname === '/v1/notaries') return Response.json({ notaries: [await entry()] })
      if (pathname === '/v1/attestation') return Response.json(await entry())
      return globalThis.fetch(input, init)
    },
  })
}

const times = new Map<string, number[]>()

/** Lets each client make one call, in turns. */
async function compare(
  kind: string,
  { body, affidavit }: { readonly body: JsonObject; readonly affidavit: Affidavit },
): Promise<void> {
  const { baseURL } = affidavit
  const text = JSON.stringify(body)
  const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: text }
  const read = async (send: typeof affidavit.fetch) => {
    const reply = await send(`${baseURL}/chat/completions`, init)
    if (body.stream !== true) return void (await reply.json())
    const reader = reply.body?.getReader()
    while ((await reader?.read())?.done === false);
  }
  const options = { baseURL, apiKey: 'none', maxRetries: 0 }
  const clients = {
    bare: new OpenAI(options),
    checked: new OpenAI({ ...options, fetch: affidavit.fetch }),
  }
  const create = async (client: OpenAI) => {
    const answer: unknown = await client.chat.completions.create(body as never)
    if (body.stream === true) for await (const _ of answer as AsyncIterable<unknown>);
  }
  const subjects: Readonly<Record<string, () => Promise<void>>> = {
    fetch: () => read((input, request) => fetch(input, request)),
    'affidavit.fetch': () => read(affidavit.fetch),
    openai: () => create(clients.bare),
    'openai, affidavit.fetch': () => create(clients.checked),
    floor: makeFloor(),
  }
  for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++)
    for (const [name, run] of Object.entries(subjects)) {
      const start = performance.now()
      await run()
      const tookMs = performance.now() - start
      const key = `${kind}: ${name}`
      if (round >= WARM_UP_ROUNDS) times.set(key, [...(times.get(key) ?? []), tookMs])
    }
  for (const pair of ['fetch', 'openai']) {
    const [bare, checked] = medians(kind, pair)
    const floor = medianOf(`${kind}: floor`)
    console.log(
      `  ${kind.padEnd(24)} ${pair.padEnd(7)} ${us(bare)} µs, checked ${us(checked)} µs: ` +
        `+ ${us(checked - bare)} µs, ${(checked / bare).toFixed(2)} ×; ` +
        `${((checked - bare) / floor).toFixed(2)} × two bare recoveries of a signer (${us(floor)} µs)`,
    )
  }
}

/** The cost of one more chunk: the difference between the longer and the shorter stream. */
function report(): void {
  const [few = 0, many = 1] = CHUNKS
  for (const pair of ['fetch', 'openai']) {
    const [bareFew, checkedFew] = medians(`stream, ${few} chunks`, pair)
    const [bareMany, checkedMany] = medians(`stream, ${many} chunks`, pair)
    const bare = (bareMany - bareFew) / (many - few)
    const checked = (checkedMany - checkedFew) / (many - few)
    console.log(
      `  ${'each chunk'.padEnd(24)} ${pair.padEnd(7)} ${us(bare)} µs, checked ${us(checked)} µs: ` +
        `+ ${us(checked - bare)} µs`,
    )
  }
}

/**
 * The least work of any check: two recoveries of a signer, of the answer and of the head. It runs
 * in turns with the calls, because code that pauses between its runs is slower.
 */
function makeFloor(): () => Promise<void> {
  const signed = [1, 2].map(() => {
    const digest = crypto.getRandomValues(new Uint8Array(32))
    const signature = decodeHex(Wallet.createRandom().signingKey.sign(digest).serialized)
    return { digest, signature }
  })
  return async () => {
    for (const one of signed) recoverPublicKey(one)
  }
}

function medians(kind: string, pair: string): readonly [bare: number, checked: number] {
  const checked = pair === 'fetch' ? 'affidavit.fetch' : `${pair}, affidavit.fetch`
  return [medianOf(`${kind}: ${pair}`), medianOf(`${kind}: ${checked}`)]
}

function medianOf(key: string): number {
  const sorted = (times.get(key) ?? []).toSorted((left, right) => left - right)
  return quantile(sorted, 0.5)
}

function us(ms: number): string {
  return (ms * 1000).toFixed(1)
}

function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text)
}

const folder = await mkdtemp(join(tmpdir(), 'affidavit-bench-'))
try {
  await measureAll()
} finally {
  await rm(folder, { recursive: true, force: true })
}
