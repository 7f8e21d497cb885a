import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { type Affidavit as Client, connect } from '#client/index.ts'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import { type OtlpCollector, startOtlpCollector } from '../support/otlp-collector.ts'
import { type PostgresServer, startPostgres } from '../support/postgres.ts'
import { findForms, readFolder, readMemory } from '../support/search-bytes.ts'

/** `CONFIDENTIALITY_CALLS=1000` makes the long run. */
const CALLS = Number(process.env.CONFIDENTIALITY_CALLS ?? 64)
const CONCURRENCY = 16
/** Calls that are running while memory is searched. */
const HELD = 8
const isLinux = process.platform === 'linux'

/**
 * Texts that are planted in calls, and searched for. They have no form that a pattern could match.
 */
type Planted = { readonly prompt: string; readonly answer: string; readonly credential: string }
const plant = (): Planted => ({
  prompt: `prompt${randomBytes(12).toString('hex')}`,
  answer: `answer${randomBytes(12).toString('hex')}`,
  credential: `credential${randomBytes(12).toString('hex')}`,
})
const ENCRYPTED = plant()
const PLAIN = plant()
const WHATS = ['prompt', 'answer', 'credential'] as const
type What = (typeof WHATS)[number]

/**
 * Sent in a header that may be written: finding it shows that the search reads what was written.
 */
const REQUEST_ID = `requestid${randomBytes(12).toString('hex')}`

let folder: string
let provider: Server
let postgres: PostgresServer
let collector: OtlpCollector
let service: Affidavit
/** Credentials that the provider got, and calls that it has not answered yet. */
const credentials = new Set<string>()
const held: ServerResponse[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-confidentiality-'))
  provider = createServer((request, response) => void serveProvider(request, response))
  provider.listen(0, '127.0.0.1')
  await once(provider, 'listening')
  const origin = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`
  const providersFile = join(folder, 'providers.json')
  const planted = { name: 'openai', origin, path: '/', models: ['planted/*'] }
  await writeFile(providersFile, JSON.stringify([planted]))
  postgres = await startPostgres()
  collector = await startOtlpCollector()
  await rm(join(folder, 'sockets'), { recursive: true, force: true })
  const recorder = join(import.meta.dirname, '../support/record-sockets.ts')
  service = await startAffidavit({
    logLevel: 'debug',
    variables: {
      DATABASE_URL: postgres.url,
      METRICS_PORT: '0',
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      PROVIDERS_FILE: providersFile,
      RECORD_SOCKETS: await mkdtemp(join(folder, 'sockets-')),
      NODE_OPTIONS: `--import ${recorder} --heapsnapshot-signal=SIGUSR2 --diagnostic-dir=${folder}`,
    },
  })
}, 240_000)
afterAll(async () => {
  for (const response of held) response.destroy()
  await service?.stop()
  provider?.close()
  await collector?.close()
  await postgres?.stop()
  await rm(folder, { recursive: true, force: true })
})

/** A provider that repeats the prompt, plants texts in answers, and quotes its input in errors. */
async function serveProvider(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part as Buffer)
  const text = Buffer.concat(parts).toString()
  const { authorization = '' } = request.headers
  credentials.add(authorization)
  const { model, messages } = JSON.parse(text)
  const planted = text.includes(ENCRYPTED.prompt) ? ENCRYPTED : PLAIN
  const content = `${planted.answer} to ${messages[0].content}`
  switch (model) {
    case 'planted/held':
      held.push(response)
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      response.write(`data: ${JSON.stringify(chunk(model, content))}\n\n`)
      return
    case 'planted/stream':
      response.writeHead(200, { 'content-type': 'text/event-stream' })
      for (const word of [...content.split(' '), null])
        response.write(`data: ${JSON.stringify(chunk(model, word))}\n\n`)
      response.end('data: [DONE]\n\n')
      return
    case 'planted/refused': {
      const message = `${authorization} ${text} ${planted.answer}`
      response.writeHead(400, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ error: { message, code: 'quoted' } }))
      return
    }
    default: {
      const message = { role: 'assistant', content }
      const choices = [{ index: 0, message, finish_reason: 'stop' }]
      const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 }
      const whole = { id: 'x', object: 'chat.completion', created: 1, model, choices, usage }
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(whole))
    }
  }
}

/** The last chunk, without a word, ends the answer. */
function chunk(model: string, word: string | null) {
  const delta = word === null ? {} : { content: ` ${word}` }
  const choices = [{ index: 0, delta, finish_reason: word === null ? 'stop' : null }]
  return { id: 'x', object: 'chat.completion.chunk', created: 1, model, choices }
}

async function open(encrypt: boolean): Promise<Client> {
  const policy = JSON.parse(await readFile(service.policyFile, 'utf8'))
  return await connect({
    url: service.url,
    apiKey: service.apiKey,
    policy,
    encrypt,
  })
}

const KINDS = ['ok', 'stream', 'refused', 'ok', 'stream', 'invalid', 'stream', 'ok'] as const

/** Makes one call, and checks its status; gives the response with its body not read yet. */
async function call(client: Client, planted: Planted, kind: string): Promise<Response> {
  const body = {
    model: `planted/${kind}`,
    messages: [{ role: 'user', content: `${planted.prompt} ${randomBytes(4).toString('hex')}` }],
    ...(kind === 'stream' || kind === 'held' ? { stream: true } : {}),
    // An error about an invalid request may quote the request.
    ...(kind === 'invalid' ? { messages: planted.prompt } : {}),
  }
  return await client.fetch(`${client.baseURL}/chat/completions`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${service.apiKey}`,
      'content-type': 'application/json',
      'fine-tune-authorization': `Bearer ${planted.credential}`,
      'x-request-id': REQUEST_ID,
    },
    body: JSON.stringify(body),
  })
}

const STATUSES: Readonly<Record<string, number>> = { refused: 400, invalid: 422 }

/** Makes the calls, and leaves some of them open. Gives a function that ends the open ones. */
async function callMuch(client: Client, planted: Planted, count: number): Promise<() => void> {
  let made = 0
  const work = async () => {
    while (made < count) {
      const kind = KINDS[made++ % KINDS.length] ?? 'ok'
      const response = await call(client, planted, kind)
      expect([kind, response.status]).toEqual([kind, STATUSES[kind] ?? 200])
      const text = await response.text()
      if (response.ok) expect(text).toContain(planted.answer)
    }
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, work))
  const readers = await Promise.all(
    Array.from({ length: HELD }, async () => {
      const reader = (await call(client, planted, 'held')).body?.getReader()
      await reader?.read()
      return reader
    }),
  )
  return () => {
    for (const reader of readers) void reader?.cancel().catch(() => undefined)
  }
}

/** Every place that is searched, with the forms in which planted texts were found there. */
type Found = ReadonlyMap<string, Readonly<Record<What, readonly string[]>>>

async function searchEverywhere(planted: Planted): Promise<Found> {
  const found = new Map<string, Record<What, string[]>>()
  const search = (place: string, bytes: Uint8Array) => {
    const known = found.get(place) ?? { prompt: [], answer: [], credential: [] }
    for (const what of WHATS)
      known[what] = [...new Set([...known[what], ...findForms(bytes, planted[what])])]
    found.set(place, known)
  }
  if (isLinux) for (const piece of readMemory(service.pid)) search('memory', piece)
  search('heap', await takeHeapSnapshot())
  const { stdout, stderr } = service.output()
  search('output', Buffer.from(stdout + stderr))
  search('metrics', Buffer.from(await (await fetch(service.metricsUrl)).arrayBuffer()))
  search('traces', Buffer.from(collector.received(), 'latin1'))
  await searchDatabase(search)
  const [sockets = ''] = (await readdir(folder)).filter((name) => name.startsWith('sockets-'))
  for (const [name, bytes] of readFolder(join(folder, sockets)))
    search(
      `socket ${name.replace(/-\d+/, '').replace(portOf(postgres.url), ' of Postgres')}`,
      bytes,
    )
  return found
}

const portOf = (url: string) => new URL(url).port

async function takeHeapSnapshot(): Promise<Buffer> {
  const list = async () => (await readdir(folder)).filter((name) => name.endsWith('.heapsnapshot'))
  for (const old of await list()) await rm(join(folder, old))
  process.kill(service.pid, 'SIGUSR2')
  return await vi.waitFor(
    async () => {
      const [name = ''] = await list()
      const bytes = await readFile(join(folder, name))
      // The file is whole when its JSON ends.
      expect(bytes.subarray(-4).toString()).toContain(']}')
      return bytes
    },
    { timeout: 60_000, interval: 500 },
  )
}

async function searchDatabase(search: (place: string, bytes: Uint8Array) => void): Promise<void> {
  await withDatabase(async (database) => {
    const { rows: tables } = await database.query(
      "select quote_ident(schemaname) || '.' || quote_ident(tablename) as name from pg_tables where schemaname not in ('pg_catalog', 'information_schema')",
    )
    expect(tables.length).toBeGreaterThan(5)
    for (const { name } of tables) {
      const { rows } = await database.query(`select t::text as text from ${name} t`)
      search('rows', Buffer.from(rows.map(({ text }) => text).join('\n')))
    }
    await database.query('checkpoint')
    const { rows } = await database.query('show data_directory')
    for (const [name, bytes] of readFolder(rows[0].data_directory))
      search(name.startsWith('pg_wal/') ? 'WAL' : 'files of Postgres', bytes)
  })
}

async function withDatabase(use: (database: pg.Client) => Promise<void>): Promise<void> {
  const database = new pg.Client({ connectionString: postgres.url })
  await database.connect()
  try {
    await use(database)
  } finally {
    await database.end()
  }
}

describe('an attacker with the gateway, its database and its network', () => {
  let encrypted: Found
  let plain: Found

  beforeAll(async () => {
    const client = await open(true)
    const end = await callMuch(client, ENCRYPTED, CALLS)
    encrypted = await searchEverywhere(ENCRYPTED)
    end()
    const endPlain = await callMuch(await open(false), PLAIN, 2 * KINDS.length)
    plain = await searchEverywhere(PLAIN)
    endPlain()
  }, 900_000)

  it('the calls are served, and their provider was asked with the credential that was sealed', () => {
    expect([...credentials].toSorted()).toEqual(
      [`Bearer ${ENCRYPTED.credential}`, `Bearer ${PLAIN.credential}`].toSorted(),
    )
    expect(held.length).toBe(2 * HELD)
  })

  it.each(WHATS)(
    'the %s of an encrypted call is found nowhere in gateway, database and network',
    (what) => {
      const places = [...encrypted].filter(([, found]) => found[what].length > 0)
      expect(places.map(([place, found]) => [place, found[what]])).toEqual([])
    },
  )

  it('the same search finds prompt, answer and credential of a call that was not encrypted', () => {
    const placesOf = (what: What) =>
      [...plain].filter(([, found]) => found[what].length > 0).map(([place]) => place)
    // On a busy machine, the text may have left the heap, but not yet the memory.
    const inMemory = [isLinux ? 'memory' : 'heap']
    const stored = ['rows', 'WAL', 'files of Postgres', 'socket port of Postgres.out']
    const passedIn = ['socket accepted.in', 'socket pipe.out']
    const passedOut = ['socket pipe.in', 'socket accepted.out']
    expect(placesOf('prompt')).toEqual(
      expect.arrayContaining([...inMemory, ...stored, ...passedIn, ...passedOut]),
    )
    expect(placesOf('answer')).toEqual(expect.arrayContaining([...stored, ...passedOut]))
    expect(placesOf('credential')).toEqual(expect.arrayContaining(passedIn))
  })

  it('the search for content sees what is written about a call, in every place', async () => {
    const { stdout, stderr } = service.output()
    expect(findForms(Buffer.from(stdout + stderr), REQUEST_ID)).toContain('bytes')
    expect(collector.received()).toContain('affidavit')
    expect(collector.spans().length).toBeGreaterThan(CALLS)
    const places = [...encrypted.keys()]
    for (const place of ['output', 'metrics', 'traces', 'rows', 'WAL', 'heap', 'socket pipe.in'])
      expect(places).toContain(place)
    if (isLinux) expect(places).toContain('memory')
  })

  it('the records of encrypted calls show their model and their count of tokens', async () => {
    await withDatabase(async (database) => {
      const { rows } = await database.query(
        "select count(*)::int as count from records r where request is null and usage like '%7%' and r::text like '%planted/ok%'",
      )
      expect(rows[0].count).toBeGreaterThan(CALLS / 4)
    })
  })
})
