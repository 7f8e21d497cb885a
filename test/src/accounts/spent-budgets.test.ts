import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createBudgetsStore } from '#src/accounts/budgets-store.ts'
import { ApiError } from '#src/api/errors.ts'
import { DispatchError } from '#src/nodes/runs/dispatch-error.ts'
import { type Database, openDatabase } from '#src/storage/database.ts'
import { getPath, outcomeOf, VERIFIED_PATH } from '../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'
import { sendBody } from '../../support/register-node.ts'
import {
  chunksOf,
  createScriptedDispatcher,
  HELLO,
  nodeChunk,
} from '../../support/scripted-dispatcher.ts'
import { answerFault, answerWhole } from '../../support/scripted-enclave.ts'
import { createTestDatabase } from '../../support/test-database.ts'

/** What a call's estimate counts: 8 bytes and a message, and `max_tokens`. */
const PROMPT_TOKENS = 6
const ANSWER_TOKENS = 10
const REQUEST = {
  model: 'demo/echo',
  messages: [{ role: 'user', content: '12345678' }],
  max_tokens: ANSWER_TOKENS,
}
const PRICES = {
  prices: [
    {
      models: ['demo/echo'],
      per_million_input_tokens: '3',
      per_million_output_tokens: '9',
      per_request: '0.000001',
    },
    { models: ['demo/image'], per_image: '0.04', per_request: '0.001' },
  ],
}

/** Two whole gateways on one database. */
let gateways: readonly TestGateway[] = []
let database: Database
let folder = ''
const nodes = createScriptedDispatcher()
let makeImages: () => Promise<string>

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-budgets-'))
  const pricesFile = join(folder, 'prices.json')
  await writeFile(pricesFile, JSON.stringify(PRICES))
  const url = await createTestDatabase()
  const images = {
    models: () => ['demo/image'],
    make: () => makeImages(),
    find: async () => null,
  }
  const options = {
    postgres: { createDatabase: async () => url },
    nodes,
    settings: { pricesFile },
    images,
  }
  gateways = [await startGateway(options), await startGateway(options)]
  database = await openDatabase({ url })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await database.close()
  await Promise.all(gateways.map((gateway) => gateway.stop()))
  await rm(folder, { recursive: true })
}, GATEWAY_HOOK_TIMEOUT_MS)
beforeEach(() => nodes.setScript(() => chunksOf(...HELLO)))

/** A key of an account that may use so much. */
async function open(budgets: Readonly<Partial<Record<'requests' | 'tokens' | 'money', number>>>) {
  const account = `account ${crypto.randomUUID()}`
  const [first] = gateways
  if (first === undefined) throw new Error('expected a gateway')
  const { text: key } = await first.keys.create({ accountName: account, name: 'k' })
  for (const [name, bound] of Object.entries(budgets)) {
    const what = name as 'requests' | 'tokens' | 'money'
    await createBudgetsStore(database).set({ account, key: null, what, per: 'total', bound })
  }
  const post = (n: number, path: string, body: object) =>
    sendBody({ url: gateways[n % 2]?.url ?? '', key }, 'POST', path, body)
  return {
    key,
    post,
    chat: (n = 0, members: object = {}) =>
      post(n, '/v1/chat/completions', { ...REQUEST, ...members }),
    /** What is used of each budget, as each gateway reports it to the holder. */
    async used() {
      const reported = await Promise.all(
        gateways.map(async ({ url }) => {
          const { budgets: list } = (await (
            await getPath({ url, key }, '/v1/dashboard/me')
          ).json()) as { readonly budgets: readonly { what: string; used: number; left: number }[] }
          return Object.fromEntries(list.map(({ what, used }) => [what, used]))
        }),
      )
      expect(reported[0]).toEqual(reported[1])
      return reported[0]
    },
  }
}

const ESTIMATE = PROMPT_TOKENS + ANSWER_TOKENS
/** Of so many tokens in one call, billionths. */
const costOf = (prompt: number, answer: number) => prompt * 3_000 + answer * 9_000 + 1_000
const COST = costOf(PROMPT_TOKENS, ANSWER_TOKENS)

describe('a call that has no whole answer', () => {
  const generous = { requests: 100, tokens: 10 ** 6, money: 10 ** 12 }

  it('a call whose node fails counts as a request without tokens', async () => {
    const customer = await open(generous)
    nodes.setScript(() => {
      throw new DispatchError('node_failed', 'broken')
    })
    expect((await customer.chat()).status).toBe(502)
    await expect.poll(customer.used).toEqual({ requests: 1, tokens: 0, money: 1_000 })
  })

  it('a stream whose caller leaves counts with what came', async () => {
    const customer = await open(generous)
    const left = Promise.withResolvers<void>()
    nodes.setScript(async function* (call) {
      yield nodeChunk({ role: 'assistant', content: '' })
      yield nodeChunk({ content: 'x'.repeat(16) })
      await new Promise((resolve) => call.signal.addEventListener('abort', resolve))
      left.resolve()
      call.signal.throwIfAborted()
    })
    const reply = await customer.chat(1, { stream: true })
    const reader = reply.body?.getReader()
    await reader?.read()
    expect(await customer.used()).toEqual({
      requests: 1,
      tokens: ESTIMATE,
      money: COST,
    })
    await reader?.cancel()
    await left.promise
    // The prompt, and a token for each four characters.
    await expect
      .poll(customer.used)
      .toEqual({ requests: 1, tokens: PROMPT_TOKENS + 4, money: costOf(PROMPT_TOKENS, 4) })
  })
})

describe('a verified call', () => {
  it('a verified call counts with what its record says, and as a request alone when its provider fails', async () => {
    const customer = await open({ requests: 2, tokens: 10 ** 6, money: 10 ** 12 })
    const [first, second] = gateways
    first?.enclave.setScript(
      answerFault({ status: 502, code: 'provider_error', message: 'broken' }),
    )
    expect((await customer.post(0, VERIFIED_PATH, REQUEST)).status).toBe(502)
    await expect.poll(customer.used).toEqual({ requests: 1, tokens: 0, money: 1_000 })
    second?.enclave.setScript(answerWhole({}))
    expect((await customer.post(1, VERIFIED_PATH, REQUEST)).status).toBe(200)
    const spent = { requests: 2, tokens: 4, money: 1_000 + costOf(3, 1) }
    await expect.poll(customer.used).toEqual(spent)
    const refused = await customer.post(1, VERIFIED_PATH, REQUEST)
    expect(await outcomeOf(refused)).toEqual([429, 'insufficient_quota'])
    expect(await customer.used()).toEqual(spent)
  })
})

describe('images', () => {
  const ask = { model: 'demo/image', prompt: 'a lighthouse', n: 3 }
  const IMAGE = 40_000_000
  const REQUEST_COST = 1_000_000

  it('images cost what each of them costs, and nothing when they fail', async () => {
    const customer = await open({ requests: 5, money: 3 * IMAGE + 2 * REQUEST_COST })
    makeImages = () => Promise.reject(new ApiError('provider_error', 'broken'))
    expect((await customer.post(0, '/v1/images/generations', ask)).status).toBe(502)
    await expect.poll(customer.used).toEqual({ requests: 1, money: REQUEST_COST })
    makeImages = async () => JSON.stringify({ created: 1, data: [] })
    expect((await customer.post(1, '/v1/images/generations', ask)).status).toBe(200)
    const spent = { requests: 2, money: 3 * IMAGE + 2 * REQUEST_COST }
    await expect.poll(customer.used).toEqual(spent)
    const refused = await customer.post(0, '/v1/images/generations', { ...ask, n: 1 })
    expect(await outcomeOf(refused)).toEqual([429, 'insufficient_quota'])
    expect(await customer.used()).toEqual(spent)
  })
})
