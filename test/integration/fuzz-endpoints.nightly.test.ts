import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createDocument } from '#src/api/openapi/document.ts'
import { NODE_SOCKET_PATH } from '#src/nodes/hub/node-socket.ts'
import { type Affidavit, startAffidavit } from '../support/affidavit.ts'
import { ROUTES } from '../support/api-routes.ts'
import { examplesFor } from '../support/fuzz/examples.ts'
import { exchange, exchangeBytes, type Outcome } from '../support/fuzz/exchange.ts'
import type { FuzzRequest } from '../support/fuzz/fuzz-request.ts'
import {
  collectMeaningful,
  type MeaningfulValues,
  modelsFor,
  NOBODY,
} from '../support/fuzz/meaningful-values.ts'
import { noHttp } from '../support/fuzz/no-http.ts'
import { type ApiDocument, createReplyCheck, operationsOf } from '../support/fuzz/reply-check.ts'
import {
  type FuzzedOperation,
  type RequestOptions,
  requestsOf,
} from '../support/fuzz/request-arbitrary.ts'
import { sureRequestsOf } from '../support/fuzz/sure-requests.ts'
import { type ScriptedEndpoint, startScriptedEndpoint } from '../support/scripted-endpoint.ts'

/**
 * Random requests for each operation. The same seed and number make the same requests; a failure
 * prints its seed.
 */
const RUNS = Number(process.env.FUZZ_RUNS ?? 40)
const SEED = Number(process.env.FUZZ_SEED ?? 20_261_121)

const DOCUMENT = createDocument(ROUTES, { title: '', description: '' }) as unknown as ApiDocument
const check = createReplyCheck(DOCUMENT)

let search: ScriptedEndpoint
let service: Affidavit
let port: number
let meaningful: MeaningfulValues
beforeAll(async () => {
  const item = { title: 't', url: 'https://example.com', content: 'c' }
  search = await startScriptedEndpoint(() => ({ results: [item] }))
  const variables = { SEARCH_PROVIDER: 'searxng', SEARCH_URL: search.origin }
  service = await startAffidavit({ logLevel: 'warn', variables })
  port = Number(new URL(service.url).port)
  meaningful = await collectMeaningful({ url: service.url, key: service.apiKey })
})
afterAll(async () => {
  await service.stop()
  await search.stop()
})

/** How many answers each operation gave, by status; `closed`: no answer. */
const tally = new Map<string, Map<number | 'closed', number>>()

function count({ method, path }: FuzzedOperation, outcome: Outcome): void {
  const name = outcome.kind === 'closed' ? 'closed' : outcome.reply.status
  const counts = tally.get(`${method} ${path}`) ?? new Map()
  tally.set(`${method} ${path}`, counts.set(name, (counts.get(name) ?? 0) + 1))
}

function optionsFor(path: string): RequestOptions {
  const { dictionary, nodeId } = meaningful
  return {
    headers: [
      ['host', `127.0.0.1:${port}`],
      ['authorization', `Bearer ${service.apiKey}`],
    ],
    dictionary: { ...dictionary, model: modelsFor(path) },
    examples: examplesFor(path, nodeId),
  }
}

/** Each operation gets other requests: one may accept what another refuses. */
let nextSeed = SEED

async function tryRequests(
  operation: FuzzedOperation,
  options: RequestOptions = optionsFor(operation.path),
): Promise<void> {
  const requests = requestsOf(operation, options)
  const property = fc.asyncProperty(requests, async (request) => {
    const outcome = await exchange(port, request)
    count(operation, outcome)
    if (outcome.kind === 'reply') check(request, operation, outcome.reply)
    else if (request.framing.kind !== 'conflicting') throw new Error('expected an answer')
  })
  const examples = sureRequestsOf(operation, options).map((request): [FuzzRequest] => [request])
  await fc.assert(property, { seed: nextSeed++, numRuns: RUNS + examples.length, examples })
}

const DIALLING = [
  ['connection', 'Upgrade'],
  ['upgrade', 'websocket'],
  ['sec-websocket-version', '13'],
  ['sec-websocket-key', 'dGhlIHNhbXBsZSBub25jZQ=='],
  ['node-id', 'nobodys'],
  ['model', 'demo/echo'],
] as const

const ROOT = { method: 'GET', path: '/', parameters: [], body: null }

const timeout = 60_000 + RUNS * 1_000

describe('an operation of the interface', () => {
  it.concurrent.each(operationsOf(DOCUMENT))(
    '$method $path answers as documented to any request',
    { timeout },
    (operation) => tryRequests(operation),
  )

  it.concurrent.each([
    NODE_SOCKET_PATH,
    '/docs',
    '/openapi.json',
    '/nothing',
    '/v1/log/',
    '*',
    '//',
  ])('the path %s, which is not in the document, answers in the same forms', { timeout }, (path) =>
    tryRequests({ method: 'GET', path, parameters: [], body: null }),
  )

  it.concurrent('a node that dials is let in or refused', { timeout }, () => {
    const { headers, ...rest } = optionsFor(NODE_SOCKET_PATH)
    const dialling = { ...rest, headers: [...headers, ...DIALLING] }
    return tryRequests(
      { method: 'GET', path: NODE_SOCKET_PATH, parameters: [], body: null },
      dialling,
    )
  })

  it.concurrent('bytes that are no HTTP are refused, or the connection ends', {
    timeout,
  }, async () => {
    const request = {
      method: 'GET',
      target: '/',
      headers: [],
      framing: { kind: 'length' },
    } as const
    const property = fc.asyncProperty(noHttp, async (bytes) => {
      const outcome = await exchangeBytes(port, { bytes, method: 'GET', isWhole: false })
      if (outcome.kind === 'reply') check({ ...request, body: bytes }, ROOT, outcome.reply)
    })
    await fc.assert(property, { seed: SEED, numRuns: RUNS })
  })
})

describe('what was tried', () => {
  it('the operations that were tried are those of the document that is served', async () => {
    const served = (await (await fetch(`${service.url}/openapi.json`)).json()) as ApiDocument
    expect(served.paths).toEqual(DOCUMENT.paths)
  })

  it('every operation of the document was served and refused at least once', () => {
    const untried = operationsOf(DOCUMENT).filter(({ method, path }) => {
      // The backend of the demonstration does not speak it.
      if (path === '/v1/completions') return false
      const counts = tally.get(`${method} ${path}`)
      const statuses = [...(counts?.keys() ?? [])].filter((name) => name !== 'closed')
      return counts?.has(200) !== true || statuses.every((status) => status < 400)
    })
    expect(untried).toEqual([])
  })

  it('the service is ready after all requests, and logged no internal fault', async () => {
    expect((await fetch(`${service.url}/readyz`)).status).toBe(200)
    // Except that the addresses of made-up enclaves do not answer.
    const lines = service
      .output()
      .stderr.split('\n')
      .filter((line) => !line.includes(NOBODY))
    expect(lines.filter((line) => /"level":"(error|fatal)"/.test(line))).toEqual([])
  })
})
