import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import type { ProviderEntry } from '#enclave/protocol/enclave-api.ts'
import { createLogger } from '#src/observability/logger.ts'
import {
  askProviderLists,
  LISTED_MAX,
  type ListOutcome,
} from '#src/verified/calls/provider-lists.ts'
import { CHAT_REQUEST, postChat } from '../../../support/calls.ts'
import { createAuthority, type TestCertificate } from '../../../support/certificates.ts'
import { startGateway } from '../../../support/gateway.ts'
import { readMetrics } from '../../../support/read-metrics.ts'
import { answerWhole } from '../../../support/scripted-enclave.ts'

const KEY = 'operators-key-0123456789'

const ends: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end()
})

/** A provider on loopback that answers `GET /v1/models` with these ids, or by this function. */
async function startProvider(
  answer: readonly unknown[] | ((request: IncomingMessage, response: ServerResponse) => void),
  tls: TestCertificate | null = null,
) {
  const requests: IncomingMessage[] = []
  const listener = (request: IncomingMessage, response: ServerResponse) => {
    requests.push(request)
    if (typeof answer === 'function') return answer(request, response)
    response.writeHead(200, { 'content-type': 'application/json' })
    response.end(JSON.stringify({ object: 'list', data: answer.map((id) => ({ id })) }))
  }
  const server =
    tls === null
      ? createServer(listener)
      : createTlsServer({ cert: tls.certificate, key: tls.key }, listener)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  ends.push(async () => {
    server.closeAllConnections()
    server.close()
    await once(server, 'close')
  })
  const { port } = server.address() as AddressInfo
  return { origin: `${tls === null ? 'http' : 'https'}://127.0.0.1:${port}`, requests }
}

const entryOf = (name: string, origin: string, models: readonly string[]): ProviderEntry => ({
  name,
  origin,
  path: '/v1/chat/completions',
  models,
})

/** Asks the providers of a table, by a clock that the test moves. */
function askLists(
  table: readonly ProviderEntry[],
  credentials = new Map([['openai', KEY]]),
  providerCas: readonly string[] | null = null,
) {
  const asked: { provider: string; outcome: ListOutcome }[] = []
  const lines: string[] = []
  const clock = { ms: 0 }
  const own = { credentials, table }
  const identity = () => ({ boot_configuration: { providers: own.table } })
  const lists = askProviderLists({
    enclaves: { identities: () => [identity() as never] },
    credentials: () => own.credentials,
    providerCas,
    onAsked: (one) => asked.push(one),
    now: () => clock.ms,
    log: createLogger({ level: 'debug', destination: { write: (line) => void lines.push(line) } }),
  })
  ends.push(() => lists.stop())
  return { lists, asked, lines, clock, own }
}

const outcomes = (asked: readonly { readonly outcome: ListOutcome }[]) =>
  asked.map(({ outcome }) => outcome)

it("the lists of providers are asked for with the operator's key beside the chat endpoint", async () => {
  const { origin, requests } = await startProvider(['gpt-b', 'gpt-a'])
  const { lists, lines } = askLists([entryOf('openai', origin, ['gpt-*'])])
  await expect.poll(lists.listed).toEqual(['gpt-a', 'gpt-b'])
  expect(requests.map(({ url, headers }) => [url, headers.authorization])).toEqual([
    ['/v1/models', `Bearer ${KEY}`],
  ])
  expect(lines.join()).not.toContain(KEY)
})

it('a list of a provider over TLS is read under the authorities that are trusted, and under no others', async () => {
  const authority = await createAuthority()
  const tls = await authority.issue({ hosts: ['127.0.0.1'] })
  const { origin } = await startProvider(['gpt-a'], tls)
  const table = [entryOf('openai', origin, ['gpt-*'])]
  const { lists } = askLists(table, undefined, [authority.certificate])
  await expect.poll(lists.listed).toEqual(['gpt-a'])
  const { asked } = askLists(table)
  await expect.poll(() => outcomes(asked)).toEqual(['unreachable'])
})

it("a list has what its provider serves alone: not another provider's models, nor a fine-tuned one", async () => {
  const liar = await startProvider([
    'gpt-a',
    'claude-a',
    'ft:gpt-a:someone',
    'models/gpt-b',
    'gpt-a',
    'demo/gpt',
  ])
  const { lists } = askLists([
    entryOf('openai', liar.origin, ['gpt-*', 'ft:*']),
    entryOf('anthropic', 'https://anthropic.test', ['claude-*']),
  ])
  await expect.poll(lists.listed).toEqual(['gpt-a', 'gpt-b'])
})

it('a hostile list is bounded, in an order that is not its own, and nothing of another form is taken', async () => {
  const many = Array.from(
    { length: 20_000 },
    (_, at) => `gpt-${String(19_999 - at).padStart(5, '0')}`,
  )
  const hostile = [
    'gpt-\u202e',
    'gpt-\n',
    'gpt- ',
    `gpt-${'x'.repeat(300)}`,
    '',
    7,
    null,
    {},
    [],
    true,
  ]
  const { origin } = await startProvider([...hostile, ...many])
  const { lists } = askLists([entryOf('openai', origin, ['*'])])
  await expect.poll(() => lists.listed().length).toBe(LISTED_MAX)
  expect(lists.listed()[0]).toBe('gpt-00000')
  expect(lists.listed().every((id) => /^gpt-\d{5}$/.test(id))).toBe(true)
})

it.each<[string, ListOutcome, Parameters<typeof startProvider>[0]]>([
  ['an error', 'refused', (_, response) => response.writeHead(500).end(`no ${KEY}`)],
  ['a redirect', 'refused', (_, response) => response.writeHead(302, { location: '/x' }).end()],
  ['no JSON', 'bad_answer', (_, response) => response.end('<html>')],
  ['no list', 'bad_answer', (_, response) => response.end('{"data": {}}')],
  ['null', 'bad_answer', (_, response) => response.end('null')],
  [
    'too much',
    'answer_too_large',
    (_, response) => response.end(Buffer.alloc(9 * 1024 * 1024, 32)),
  ],
  ['a broken connection', 'unreachable', (request) => request.socket.destroy()],
])(
  'a provider that answers with %s lists nothing and costs nobody anything',
  async (_, outcome, answer) => {
    const bad = await startProvider(answer)
    const fine = await startProvider(['gpt-a'])
    const { lists, asked, lines } = askLists(
      [entryOf('bad', bad.origin, ['bad-*']), entryOf('openai', fine.origin, ['gpt-*'])],
      new Map([
        ['openai', KEY],
        ['bad', KEY],
      ]),
    )
    await expect.poll(() => asked.length).toBe(2)
    expect(asked).toContainEqual({ provider: 'bad', outcome })
    expect(lists.listed()).toEqual(['gpt-a'])
    expect(
      lines.some((line) => line.includes('provider gave no list') && line.includes(outcome)),
    ).toBe(true)
    expect(lines.join()).not.toContain(KEY)
  },
)

it('a provider that hangs keeps no other list waiting, and ends with the gateway', async () => {
  const hanging = await startProvider(() => undefined)
  const fine = await startProvider(['gpt-a'])
  const { lists } = askLists([
    entryOf('hanging', hanging.origin, ['slow-*']),
    entryOf('openai', fine.origin, ['gpt-*']),
  ])
  await expect.poll(lists.listed).toEqual(['gpt-a'])
  const begun = performance.now()
  await lists.stop()
  expect(performance.now() - begun).toBeLessThan(5_000)
})

it('a list is asked for again after an hour, and sooner after a failure, and the old one stays meanwhile', async () => {
  let isFailing = false
  const { origin, requests } = await startProvider((_, response) => {
    if (isFailing) response.writeHead(503).end()
    else response.end('{"data": [{"id": "gpt-a"}]}')
  })
  const { lists, asked, clock } = askLists([entryOf('openai', origin, ['gpt-*'])])
  await expect.poll(() => outcomes(asked)).toEqual(['listed'])
  isFailing = true
  clock.ms += 3_600_000
  await expect.poll(() => outcomes(asked)).toEqual(['listed', 'refused'])
  expect(lists.listed()).toEqual(['gpt-a'])
  isFailing = false
  clock.ms += 10_000
  await expect.poll(() => outcomes(asked)).toEqual(['listed', 'refused', 'listed'])
  expect(requests).toHaveLength(3)
})

it('a provider is asked when its credential comes or changes, and forgotten when it goes', async () => {
  const { origin, requests } = await startProvider(['gpt-a'])
  const entry = { ...entryOf('openai', origin, ['gpt-*']) }
  const { lists, own } = askLists([entry], new Map())
  await expect.poll(lists.listed).toEqual(['gpt-a'])
  own.credentials = new Map([['openai', KEY]])
  await expect
    .poll(() => requests.map(({ headers }) => headers.authorization))
    .toEqual([undefined, `Bearer ${KEY}`])
  own.table = []
  await expect.poll(lists.listed).toEqual([])
})

it('a gateway that starts lists what its providers have without a call, in one order, with its patterns', async () => {
  const openai = await startProvider(['gpt-b', 'gpt-a', 'text-embedding-3'])
  const failing = await startProvider((_, response) => response.writeHead(401).end())
  const gateway = await startGateway({
    credentials: new Map([['openai', KEY]]),
    settings: { asksProviderModels: true, metrics: { host: '127.0.0.1', port: 0 } },
  })
  ends.push(() => gateway.stop())
  gateway.enclave.setProviders([
    entryOf('zeta', failing.origin, ['zeta-*', 'zeta-named']),
    entryOf('openai', openai.origin, ['gpt-*', 'o*']),
    entryOf('unpaid', 'https://unpaid.test', ['claude-*']),
  ])
  gateway.enclave.setScript(answerWhole({}))
  type Listed = { data: readonly { id: string }[]; patterns: readonly { pattern: string }[] }
  const read = async () =>
    (await (await fetch(`${gateway.url}/v1/verified/models`)).json()) as Listed
  const ids = async () => (await read()).data.map(({ id }) => id)
  await expect.poll(ids).toEqual(['gpt-a', 'gpt-b', 'zeta-named'])
  const patterns = (await read()).patterns.map(({ pattern }) => pattern)
  expect(patterns).toEqual(['gpt-*', 'o*', 'zeta-*'])
  await (await postChat(gateway, { ...CHAT_REQUEST, model: 'gpt-unlisted' })).json()
  expect(await ids()).toEqual(['gpt-a', 'gpt-b', 'gpt-unlisted', 'zeta-named'])
  const samples = readMetrics(await (await fetch(gateway.metricsUrl ?? '')).text())
  expect(samples).toContainEqual({
    name: 'affidavit_provider_model_lists_total',
    labels: { provider: 'openai', outcome: 'listed' },
    value: 1,
  })
})
