import { randomBytes } from 'node:crypto'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import type { Json, JsonObject } from '#attestation/json/value.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import { type ContentCipher, createContentCipher } from '#src/storage/content-cipher.ts'
import { parseContentKeys } from '#src/storage/content-keys.ts'
import {
  CHAT_REQUEST,
  getPath,
  outcomeOf,
  postChat,
  VERIFIED_PATH,
} from '../../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, type TestGateway, useGateway } from '../../../support/gateway.ts'
import { runCommandWith } from '../../../support/run-command.ts'
import { answerWhole } from '../../../support/scripted-enclave.ts'

const KEY = randomBytes(32).toString('base64')
const ANSWER = 'an answer that is planted, 61f0'

/** What the gateway opens content with, which a test may take away. */
const keys = { opening: cipherOf(KEY) }
const content: ContentCipher = {
  ...cipherOf(KEY),
  open: (...sealed) => keys.opening.open(...sealed),
}

let folder: string
let otherKey: string

function cipherOf(text: string): ContentCipher {
  const keys = parseContentKeys(text)
  if (typeof keys === 'string') throw new Error(keys)
  return createContentCipher(keys)
}

const gateway = await useGateway({ content })
beforeAll(async () => {
  const message = { role: 'assistant', content: ANSWER, refusal: null }
  const choice = { index: 0, message, logprobs: null, finish_reason: 'stop' }
  gateway.enclave.setScript(answerWhole({ choices: [choice] }))
  otherKey = (await gateway.keys.create({ accountName: 'others', name: 'k' })).text
  folder = await mkdtemp(join(tmpdir(), 'affidavit-erasure-'))
  await writeFile(join(folder, 'keys'), `${KEY}\n`, { mode: 0o600 })
}, GATEWAY_HOOK_TIMEOUT_MS)
afterAll(async () => {
  await rm(folder, { recursive: true, force: true })
}, GATEWAY_HOOK_TIMEOUT_MS)

/** Asks with a prompt, and gives the hash. */
async function ask(prompt: string, headers: Record<string, string> = {}): Promise<string> {
  const messages = [{ role: 'user', content: prompt }]
  const reply = await postChat(gateway, { ...CHAT_REQUEST, messages }, { headers })
  expect(reply.status).toBe(200)
  const { hash } = (await reply.json()) as { readonly hash: string }
  return hash
}

async function fetchJson(path: string, of: Pick<TestGateway, 'url' | 'key'> = gateway) {
  const reply = await getPath(of, path)
  expect(reply.status).toBe(200)
  return parseExactJson(new Uint8Array(await reply.arrayBuffer())) as JsonObject
}

const recordOf = (hash: string) => fetchJson(`${VERIFIED_PATH}/${hash}`)

function erase(hash: string, { key = gateway.key, query = '' } = {}): Promise<Response> {
  return fetch(`${gateway.url}${VERIFIED_PATH}/${hash}${query}`, {
    method: 'DELETE',
    headers: { authorization: `Bearer ${key}` },
  })
}

const affidavit = (...words: string[]) =>
  runCommandWith(
    { DATABASE_URL: gateway.databaseUrl, CONTENT_KEY_FILE: join(folder, 'keys') },
    ...words,
  )

/** Names of the checks of a record that did not pass, by outcome. */
function outcomesOf(record: JsonObject) {
  const { ok, checks } = verifyRecord(record)
  const open = checks.filter(({ outcome }) => outcome === 'not checked').map(({ name }) => name)
  return { ok, open }
}

const LEFT_OPEN = ['request hash', 'response hash', 'stream hash', 'anchor']

it('encrypted content is told to be without its key, beside proofs that hold, and is repeated to nobody', async () => {
  const headers = { 'idempotency-key': 'of-a-key-that-is-lost' }
  const hash = await ask('asked under a key that is lost', headers)
  const bundle = await fetchJson(`${VERIFIED_PATH}/${hash}/evidence`)
  keys.opening = cipherOf(randomBytes(32).toString('hex'))
  try {
    const record = await recordOf(hash)
    expect(record).toMatchObject({
      hash,
      request: null,
      response: null,
      redacted: true,
      usage: null,
      withheld: { code: 'content_key_missing', message: expect.any(String) },
    })
    expect(outcomesOf(record)).toEqual({ ok: true, open: LEFT_OPEN })
    const left = await fetchJson(`${VERIFIED_PATH}/${hash}/evidence`)
    const { record: whole } = bundle as { readonly record: { readonly receipt: JsonObject } }
    const { request_hash, response_hash } = whole.receipt
    expect(left.record).toMatchObject({ request_hash, response_hash, receipt: whole.receipt })
    expect(left.record).not.toHaveProperty('withheld')
    const search = await getPath(gateway, `${VERIFIED_PATH}?q=is+lost`)
    expect(await outcomeOf(search)).toEqual([503, 'content_key_missing'])
    const messages = [{ role: 'user', content: 'asked under a key that is lost' }]
    const again = await postChat(gateway, { ...CHAT_REQUEST, messages }, { headers })
    expect(await outcomeOf(again)).toEqual([503, 'content_key_missing'])
    expect(again.headers.get('x-should-retry')).toBe('false')
  } finally {
    keys.opening = cipherOf(KEY)
  }
  expect(await recordOf(hash)).toHaveProperty('request.model', 'demo/echo')
  const found = await fetchJson(`${VERIFIED_PATH}?q=KEY+THAT+is+lost`)
  expect(found).toMatchObject({ completions: [{ hash }] })
})

it('a completion that its account erases is a tombstone in history and evidence, and its proofs hold', async () => {
  const hash = await ask('to be erased by its account')
  const before = await recordOf(hash)
  const reply = await erase(hash, { query: '?reason=not+needed+any+more' })
  expect(reply.status).toBe(200)
  const record = (await reply.json()) as JsonObject
  const erased = { at: expect.any(Number), by: 'account', reason: 'not needed any more' }
  const { request: _, response: __, ...proofs } = before
  expect(record).toEqual({
    ...proofs,
    request: null,
    response: null,
    redacted: true,
    usage: null,
    erased,
  })
  expect(await recordOf(hash)).toEqual(record)
  expect(outcomesOf(record)).toEqual({ ok: true, open: LEFT_OPEN })
  const page = (await fetchJson(`${VERIFIED_PATH}?limit=1`)) as { readonly completions: Json[] }
  expect(page.completions).toEqual([record])
  expect(await fetchJson(`${VERIFIED_PATH}?q=to+be+erased+by+its+account`)).toMatchObject({
    completions: [],
  })
  const bundle = await fetchJson(`${VERIFIED_PATH}/${hash}/evidence`)
  expect(bundle.record).toMatchObject({ erased, receipt: before.receipt })
  expect(bundle.record).not.toHaveProperty('request')
  // Strangers receive the hashes, as before, and not the reason.
  const strangers = await fetch(`${gateway.url}/v1/evidence/${hash}`)
  expect(await strangers.json()).toMatchObject({
    record: expect.not.objectContaining({ erased: expect.anything() }),
  })
  // Another time, it is erased already.
  expect(await (await erase(hash)).json()).toEqual(record)
})

it('a completion that its account erases is not repeated for its Idempotency-Key, streamed or not', async () => {
  for (const stream of [false, true]) {
    const headers = { 'idempotency-key': `erased, streamed: ${stream}`.replaceAll(' ', '-') }
    const hash = await ask(`for a key, ${stream}`, headers)
    await erase(hash)
    const messages = [{ role: 'user', content: `for a key, ${stream}` }]
    const again = await postChat(gateway, { ...CHAT_REQUEST, messages }, { headers })
    expect(await outcomeOf(again)).toEqual([410, 'content_erased'])
  }
})

it('a completion of another account cannot be erased, whatever that account may read', async () => {
  const hash = await ask('not theirs to erase')
  expect(await outcomeOf(await erase(hash, { key: otherKey }))).toEqual([404, 'not_found'])
  const all = await gateway.keys.create({
    accountName: 'others',
    name: 'all',
    scopes: ['inference', 'history:all'],
  })
  expect(await outcomeOf(await erase(hash, { key: all.text }))).toEqual([404, 'not_found'])
  expect(JSON.stringify(await recordOf(hash))).toContain('not theirs to erase')
  const long = `?reason=${'a'.repeat(501)}`
  expect(await outcomeOf(await erase(hash, { query: long }))).toEqual([422, ['query.reason']])
  expect(await outcomeOf(await erase(hash, { query: '?reason=%00' }))).toEqual([
    422,
    ['query.reason'],
  ])
})

it('affidavit erase erases one completion for the operator, and says what it did', async () => {
  const hash = await ask('to be erased by the operator')
  const done = await affidavit('erase', `0x${hash.toUpperCase()}`, '--reason', 'law', '--json')
  expect([done.code, JSON.parse(done.stdout)]).toEqual([0, { found: 1, erased: 1 }])
  expect(await recordOf(hash)).toMatchObject({ erased: { by: 'operator', reason: 'law' } })
  const again = await affidavit('erase', hash, '--reason', 'law')
  expect(again.stdout).toMatch(/^Content of 0 records erased; 1 had no content\./)
  const none = await affidavit('erase', 'ab'.repeat(32), '--reason', 'law')
  expect(none).toMatchObject({ code: 1, stderr: expect.stringContaining('no completion has') })
})

it('affidavit erase erases all of an account, and leaves the others’', async () => {
  const theirs = await ask('theirs, to be erased', { authorization: `Bearer ${otherKey}` })
  const mine = await ask('mine, to stay')
  const done = await affidavit('erase', '--account', 'others', '--reason', 'they left')
  expect(done).toMatchObject({ code: 0, stdout: expect.stringContaining('erased') })
  const record = await fetchJson(`${VERIFIED_PATH}/${theirs}`, { ...gateway, key: otherKey })
  expect(record).toMatchObject({ erased: { by: 'operator', reason: 'they left' } })
  expect(JSON.stringify(await recordOf(mine))).toContain('mine, to stay')
  const unknown = await affidavit('erase', '--account', 'nobody', '--reason', 'x')
  expect(unknown).toMatchObject({ code: 1, stderr: expect.stringContaining('no account') })
})

it.each([
  [['erase', '--reason', 'x'], 'either a hash or --account'],
  [['erase', 'ab'.repeat(32), '--reason', 'two\nlines'], 'without control characters'],
  [['accounts', 'set-retention', 'tests', '0'], 'from 1 to 36500'],
])('affidavit does not understand %j', async (words, message) => {
  const refused = { code: 2, stderr: expect.stringContaining(message) }
  expect(await affidavit(...words)).toMatchObject(refused)
})

it('affidavit content encrypt encrypts all under the newest key, and fails where a key is missing', async () => {
  const hash = await ask('asked under the first key')
  const key = (await affidavit('content', 'key')).stdout
  const encrypt = async (name: string, text: string) => {
    await writeFile(join(folder, name), text, { mode: 0o600 })
    const variables = {
      DATABASE_URL: gateway.databaseUrl,
      CONTENT_KEY_FILE: join(folder, name),
    }
    return runCommandWith(variables, 'content', 'encrypt')
  }
  const done = { code: 0, stdout: expect.stringMatching(/^Content of [1-9]/) }
  expect(await encrypt('both', `${KEY}\n${key}`)).toMatchObject(done)
  keys.opening = cipherOf(key)
  expect(JSON.stringify(await recordOf(hash))).toContain('asked under the first key')
  const lost = { code: 1, stderr: expect.stringContaining('cannot be decrypted') }
  expect(await encrypt('old', KEY)).toMatchObject(lost)
  expect(await encrypt('back', `${key}${KEY}\n`)).toMatchObject(done)
  keys.opening = cipherOf(KEY)
})
