import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createBudgetsStore } from '#src/accounts/budgets-store.ts'
import { parseMoney } from '#src/accounts/prices.ts'
import type { UsageReply } from '#src/accounts/usage-routes.ts'
import { type Database, openDatabase } from '#src/storage/database.ts'
import { CHAT_REQUEST, getPath, outcomeOf, postChat } from '../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, type TestGateway } from '../../support/gateway.ts'
import { sendBody } from '../../support/register-node.ts'
import { runCommandWith } from '../../support/run-command.ts'
import { answerFault, answerWhole, completionOf, readAll } from '../../support/scripted-enclave.ts'

const PRICES = {
  prices: [
    { models: ['demo/image'], per_image: '0.04' },
    {
      models: ['*'],
      per_million_input_tokens: '3',
      per_million_output_tokens: '9',
      per_request: '0.000001',
    },
  ],
}
/** A name of a model that does harm in spreadsheets, and none that a database takes. */
const HOSTILE = '=HYPERLINK("http://x","y")\u0000'
const HOSTILE_KEPT = '=HYPERLINK("http://x","y")\ufffd'

let gateway: TestGateway
let database: Database
let folder = ''
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'affidavit-spend-'))
  const pricesFile = join(folder, 'prices.json')
  await writeFile(pricesFile, JSON.stringify(PRICES))
  const images = {
    models: () => ['demo/image'],
    make: async () => JSON.stringify({ created: 1, data: [] }),
    find: async () => null,
  }
  gateway = await startGateway({ settings: { pricesFile }, images })
  database = await openDatabase({ url: gateway.databaseUrl })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await database.close()
  await gateway.stop()
  await rm(folder, { recursive: true })
}, GATEWAY_HOOK_TIMEOUT_MS)

const USAGE = { prompt_tokens: 30, completion_tokens: 10, total_tokens: 40 }

/** Whole, refused, cut, encrypted, an image, and one whose model no database takes. */
async function callInEveryWay(caller: { readonly url: string; readonly key: string }) {
  const { enclave } = gateway
  enclave.setScript(answerWhole({ usage: USAGE }))
  expect((await postChat(caller, CHAT_REQUEST)).status).toBe(200)
  const refusal = { status: 400, code: 'provider_refused', message: 'no' } as const
  enclave.setScript(answerFault(refusal))
  expect((await postChat(caller, CHAT_REQUEST)).status).toBe(400)
  expect((await postChat(caller, { ...CHAT_REQUEST, model: HOSTILE })).status).toBeGreaterThan(399)

  const gone = Promise.withResolvers<void>()
  enclave.setScript(({ response }) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const chunk = JSON.stringify({ choices: [], model: 'demo/echo' })
    response.write(`data: ${chunk}\n\n`.repeat(3))
    response.on('close', () => gone.resolve())
  })
  const leave = new AbortController()
  const stream = await postChat(caller, { ...CHAT_REQUEST, stream: true }, { signal: leave.signal })
  await stream.body?.getReader().read()
  leave.abort()
  await gone.promise

  enclave.setEncryptedScript(async ({ request, response, record, seal, proof }) => {
    const notice = seal(await readAll(request), completionOf({ usage: USAGE }))
    const brought = proof('12'.repeat(16))
    record('sealed', { ...notice, call: '12'.repeat(16), model: 'demo/secret', usage: USAGE })
    await brought
    const head = { status: 200, content_type: 'application/json', retry_after_seconds: null }
    record('head', { ...head, should_retry: true })
    record('frame', Buffer.from('x'))
    response.end()
  })
  const encapsulated = { 'ehbp-encapsulated-key': '0f'.repeat(32) }
  const encrypted = await postChat(caller, CHAT_REQUEST, { headers: encapsulated })
  expect([encrypted.status, await encrypted.text()]).toEqual([200, 'x'])

  const images = { model: 'demo/image', prompt: 'a lighthouse', n: 2 }
  expect((await sendBody(caller, 'POST', '/v1/images/generations', images)).status).toBe(200)
}

it('reports tell what every kind of call used and cost as budgets do: in JSON, CSV and the command line', async () => {
  const account = `+account ${crypto.randomUUID()}`
  const { text: key, key: facts } = await gateway.keys.create({ accountName: account, name: 'k' })
  for (const what of ['requests', 'tokens', 'money'] as const)
    await createBudgetsStore(database).set({
      account,
      key: null,
      what,
      per: 'total',
      bound: 10 ** 12,
    })
  const caller = { url: gateway.url, key }
  await callInEveryWay(caller)

  const row = (reported: {
    model: string
    requests: number
    tokens: [number, number]
    money?: string
  }) => {
    const [input, output] = reported.tokens
    const nano = input * 3_000 + output * 9_000 + reported.requests * 1_000
    return {
      key: facts.id,
      model: reported.model,
      requests: reported.requests,
      tokens: input + output,
      prompt_tokens: input,
      completion_tokens: output,
      unsplit_tokens: 0,
      money: reported.money ?? String(nano / 1e9),
      unpriced_requests: 0,
    }
  }

  const usageOf = async (query: string) =>
    (await (await getPath(caller, `/v1/dashboard/usage${query}`)).json()) as UsageReply
  // A chat's prompt is estimated at a token for four bytes and four for the message.
  const prompt = 2 + 4
  await expect
    .poll(async () => (await usageOf('?by=model,key')).usage.map(({ start: _, ...row }) => row))
    .toEqual([
      // Of the encrypted call the model is known by what the enclave sealed.
      row({ model: HOSTILE_KEPT, requests: 1, tokens: [0, 0], money: '0.000001' }),
      row({ model: 'demo/echo', requests: 3, tokens: [30 + prompt, 10 + 3] }),
      row({ model: 'demo/image', requests: 1, tokens: [0, 0], money: '0.08' }),
      row({ model: 'demo/secret', requests: 1, tokens: [30, 10] }),
    ])

  const month = await usageOf('?per=month&by=operation')
  const usedOf = async () => {
    const me = (await (await getPath(caller, '/v1/dashboard/me')).json()) as {
      readonly budgets: readonly { what: string; used: number }[]
    }
    return Object.fromEntries(me.budgets.map(({ what, used }) => [what, used]))
  }
  // Budgets are settled in another transaction than usage is, perhaps later.
  await expect.poll(usedOf).toEqual({
    requests: month.requests,
    tokens: month.tokens,
    money: Number(parseMoney(month.money ?? '')),
  })
  expect(month.usage.reduce((sum, { requests }) => sum + requests, 0)).toBe(6)

  const csv = await getPath(caller, '/v1/dashboard/usage?by=model', { accept: 'text/csv' })
  expect(csv.headers.get('content-type')).toBe('text/csv; charset=utf-8; header=present')
  const text = await csv.text()
  const day = new Date((month.usage[0]?.start ?? 0) * 1000).toISOString().slice(0, 7)
  const [head, hostile] = text.split('\r\n')
  expect(head).toBe(
    'day,model,requests,tokens,prompt_tokens,completion_tokens,unsplit_tokens,money,unpriced_requests',
  )
  expect(hostile?.slice(0, 7)).toBe(day)
  expect(hostile?.slice(10)).toBe(`,"'=HYPERLINK(""http://x"",""y"")\ufffd",1,0,0,0,0,0.000001,0`)
  const json = await getPath(caller, '/v1/dashboard/usage?format=json', { accept: 'text/csv' })
  expect(json.headers.get('content-type')).toBe('application/json; charset=utf-8')

  const admin = await gateway.keys.create({ accountName: 'root', name: 'a', scopes: ['admin'] })
  const asked = `?account=${encodeURIComponent(account)}&format=csv&per=month`
  const path = `/v1/admin/usage${asked}`
  expect((await getPath(caller, path)).status).toBe(403)
  const all = await (await getPath({ ...caller, key: admin.text }, path)).text()
  const none = getPath({ ...caller, key: admin.text }, '/v1/admin/usage?account=nobody')
  expect(await outcomeOf(await none)).toEqual([404, 'not_found'])

  const run = (...words: string[]) =>
    runCommandWith({ DATABASE_URL: gateway.databaseUrl }, 'usage', ...words)
  expect(await run('--account', account, '--csv')).toMatchObject({ code: 0, stdout: all })
  expect(all.split('\r\n')[1]).toContain(`,"'${account}",${facts.accountId},6,`)
  const byKey = JSON.parse((await run('--key', facts.id, '--by', 'key', '--json')).stdout)
  expect(byKey).toMatchObject([{ account, key: facts.id, requests: 6, money: month.money }])
  const table = (await run('--from', '2000-01-01', '--to', '2000-02-01')).stdout
  expect(table.trim().split(/ {2,}/).slice(0, 3)).toEqual(['MONTH', 'ACCOUNT', 'ACCOUNT_ID'])
  expect((await run('--account', 'nobody')).stderr).toContain('no account has the name nobody')
  expect((await run('--by', 'week')).code).not.toBe(0)
})
