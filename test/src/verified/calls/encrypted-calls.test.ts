import { beforeEach, expect, it } from 'vitest'
import { KEY_CONFIG_PROBLEM } from '#attestation/ehbp.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import type { KeyHolderReply } from '#src/accounts/key-routes.ts'
import { assembleTiers } from '#src/accounts/limits/tiers.ts'
import { CHAT_REQUEST, getPath, outcomeOf, VERIFIED_PATH } from '../../../support/calls.ts'
import { startGateway, type TestGateway, useGateway } from '../../../support/gateway.ts'
import {
  type ArrivedEncrypted,
  completionOf,
  type EncryptedScript,
  readAll,
  SCRIPTED_NONCE,
  send,
} from '../../../support/scripted-enclave.ts'
import { enoughOfTheMinute, until } from '../../../support/until.ts'

/** Every model is of one group, but one that has its own. */
const group = (name: string, models: readonly string[]) => ({
  name,
  calls: ['verified', 'chat'] as const,
  models,
  pricePerMillionTokens: null,
  limits: {
    requestsPerMinute: 1_000,
    tokensPerMinute: 1_000,
    requestsPerDay: null,
    tokensPerDay: null,
  },
})
const tiers = assembleTiers('only', [
  { name: 'only', description: '', groups: [group('dear', ['demo/dear']), group('all', ['*'])] },
])

const credentials = new Map([['openai', 'sk-operator-key-1']])
const gateway = await useGateway({ credentials })
const limited = await useGateway({ tiers })

const BODY = Buffer.from(JSON.stringify(CHAT_REQUEST))
const HEAD = {
  status: 200,
  content_type: 'application/json',
  retry_after_seconds: null,
  should_retry: true,
}
const USAGE = { prompt_tokens: 30, completion_tokens: 10, total_tokens: 40 }
/** As an older enclave names a call. */
const CALL = '12'.repeat(16)

/** Reads all, seals, and answers with `frames` once the proof is there. */
function answering(
  frames: readonly string[] = ['sealed'],
  reported: { readonly model?: string; readonly usage?: typeof USAGE | null } = {},
  /** Null: the leaf's index. */
  olderCall: string | null = null,
): EncryptedScript {
  return async ({ request, response, record, seal, proof }) => {
    const notice = seal(await readAll(request), completionOf({ usage: USAGE }))
    const id = olderCall ?? String(notice.index)
    const brought = proof(id)
    record('sealed', { ...notice, call: id, model: 'demo/echo', usage: USAGE, ...reported })
    newestProof = await brought
    record('head', HEAD)
    for (const frame of frames) record('frame', Buffer.from(frame))
    response.end()
  }
}

let newest: ArrivedEncrypted | null = null
let newestProof: unknown = null
beforeEach(() => {
  newest = null
  script(answering())
})

function script(next: EncryptedScript, at = gateway): void {
  at.enclave.setEncryptedScript((arrived) => {
    newest = arrived
    return next(arrived)
  })
}

/** Runs once the call has arrived whole. */
function onceWhole(next: EncryptedScript, at = gateway): void {
  script(async (arrived) => {
    await readAll(arrived.request)
    await next(arrived)
  }, at)
}

function begin({ record }: ArrivedEncrypted, ...frames: readonly string[]): void {
  record('head', HEAD)
  for (const frame of frames) record('frame', Buffer.from(frame))
}

const ENCRYPTED = { 'ehbp-encapsulated-key': '0f'.repeat(32) }

function call(
  headers: Readonly<Record<string, string>> = {},
  { at = gateway, body = BODY as Call['body'], signal }: Readonly<Call> = {},
): Promise<Response> {
  return fetch(at.url + VERIFIED_PATH, {
    method: 'POST',
    headers: { authorization: `Bearer ${at.key}`, ...ENCRYPTED, ...headers },
    body,
    ...(signal === undefined ? {} : { signal }),
    ...(body instanceof ReadableStream ? { duplex: 'half' } : {}),
  } as RequestInit)
}

type GroupReport = { readonly model: string; readonly tokens_used_day: number }

type Call = { at?: TestGateway; body?: RequestInit['body']; signal?: AbortSignal }

it('an encrypted call passes bytes on as they are, both ways, with what the enclave needs beside them', async () => {
  const reply = await call({ 'x-request-id': 'my-own-id' })
  expect([reply.status, await reply.text()]).toEqual([200, 'sealed'])
  expect(reply.headers.get('ehbp-response-nonce')).toBe(SCRIPTED_NONCE)
  expect(newest?.call).toEqual({
    context: JSON.stringify({ account_id: gateway.accountId, request_id: 'my-own-id' }),
    credentials: { openai: 'sk-operator-key-1' },
    encapsulated_key: '0f'.repeat(32),
    sealed_credential: null,
  })
  expect(newestProof).toMatchObject({
    tx_hash: expect.stringMatching(/^0x/),
    log: { chain_id: 31337 },
  })
})

it('the proof of an encrypted call comes by itself when the pull lost it, and to an older enclave', async () => {
  const before = gateway.enclave.countSingleProofs()
  gateway.enclave.setPullsLoseProofs(true)
  expect(await (await call()).text()).toBe('sealed')
  gateway.enclave.setPullsLoseProofs(false)
  expect(gateway.enclave.countSingleProofs()).toBe(before + 1)
  script(answering(undefined, undefined, CALL))
  expect(await (await call()).text()).toBe('sealed')
  expect(newestProof).toMatchObject({ call: CALL })
  expect(gateway.enclave.countSingleProofs()).toBe(before + 2)
})

it('the proof of an encrypted call comes with the pull of the gateway that commits, whose caller it is or not', async () => {
  const { databaseUrl, enclave } = gateway
  const second = await startGateway({
    postgres: { createDatabase: async () => databaseUrl },
    enclaveSocket: enclave.socketPath,
  })
  try {
    const before = enclave.countSingleProofs()
    for (const at of [gateway, second, gateway, second])
      expect(await (await call({}, { at: { ...at, key: gateway.key } })).text()).toBe('sealed')
    expect(enclave.countSingleProofs()).toBe(before)
  } finally {
    await second.stop()
  }
})

it('an encrypted call is in the history by its hashes, which verify, without its content', async () => {
  const asked = { ...CHAT_REQUEST, user: 'of one record' }
  await (await call({}, { body: JSON.stringify(asked) })).text()
  const page = await getPath(gateway, `${VERIFIED_PATH}?limit=1`)
  const [listed] = ((await page.json()) as { completions: readonly { hash: string }[] }).completions
  if (listed === undefined) throw new Error('expected a record')
  const reply = await getPath(gateway, `${VERIFIED_PATH}/${listed.hash}`)
  const record = parseExactJson(new Uint8Array(await reply.arrayBuffer()))
  expect(record).toMatchObject({
    request: null,
    response: null,
    redacted: true,
    usage: USAGE,
    receipt: { encrypted: true, outcome: 'complete', model: { requested: 'demo/echo' } },
  })
  expect(listed).toEqual(record)
  expect(verifyRecord(record).ok).toBe(true)
  const logged = await getPath(gateway, `/v1/log/${gateway.enclave.notary}/records`)
  expect(await logged.text()).toContain(listed.hash)
})

it('an encrypted call streams: each frame leaves before the next one comes', async () => {
  const { promise, resolve } = Promise.withResolvers<void>()
  onceWhole(async ({ response, record }) => {
    record('head', { ...HEAD, content_type: 'text/event-stream; charset=utf-8' })
    record('frame', Buffer.from('one'))
    await promise
    record('frame', Buffer.from('two'))
    response.end()
  })
  const reader = (await call()).body?.getReader()
  expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('one')
  resolve()
  expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('two')
  expect((await reader?.read())?.done).toBe(true)
})

it('an encrypted call does not hold what its reader does not take', async () => {
  let writtenBytes = 0
  const frame = Buffer.alloc(2 ** 20)
  onceWhole(async ({ record, response, left }) => {
    record('head', HEAD)
    const drained = () =>
      new Promise<boolean>((resolve) => response.once('drain', () => resolve(true)))
    while (writtenBytes < 512 * frame.length) {
      writtenBytes += frame.length
      if (!record('frame', frame) && !(await Promise.race([left.then(() => false), drained()])))
        return
    }
  })
  const reply = await call()
  await reply.body?.getReader().read()
  // As much again passes through another call, while this one's reader takes nothing.
  let before = -1
  for (let quiet = 0; quiet < 10; quiet = before === writtenBytes ? quiet + 1 : 0) {
    before = writtenBytes
    await (await fetch(`${gateway.url}/healthz`)).text()
  }
  expect(writtenBytes).toBeLessThan(128 * frame.length)
  await reply.body?.cancel().catch(() => undefined)
})

it.each<[string, Record<string, string>, readonly [number, unknown]]>([
  ['with an Idempotency-Key', { 'idempotency-key': 'k' }, [400, 'unsupported_request_parameter']],
  ['with half a key', { 'ehbp-encapsulated-key': '0f' }, [400, 'bad_ciphertext']],
  ['with a key in capitals', { 'ehbp-encapsulated-key': 'AB'.repeat(32) }, [400, 'bad_ciphertext']],
  ['with no notary', { 'affidavit-notary': '0x12' }, [422, ['header.affidavit-notary']]],
  ['without a key of its account', { authorization: 'Bearer no' }, [401, 'invalid_credentials']],
])('an encrypted call %s is refused in the clear', async (_, headers, outcome) => {
  expect(await outcomeOf(await call(headers))).toEqual(outcome)
  expect(newest).toBe(null)
})

it('an encrypted call is refused when its credential is in the clear, which is not logged', async () => {
  const secret = 'sk-mine-and-nobody-elses'
  for (const header of [`Bearer ${secret}`, secret, 'hpke', 'hpke !'])
    expect(await outcomeOf(await call({ 'fine-tune-authorization': header }))).toEqual([
      422,
      ['header.fine-tune-authorization'],
    ])
  expect(newest).toBe(null)
  expect(gateway.logLines.join('')).not.toContain(secret)
})

it('an encrypted call longer than any may be is refused in the clear, by its length or as it comes', async () => {
  const long = Buffer.alloc(12 * 2 ** 20)
  expect(await outcomeOf(await call({}, { body: long }))).toEqual([413, 'payload_too_large'])
  script(async ({ request }) => void (await readAll(request)))
  const chunked = new ReadableStream({
    pull(controller) {
      controller.enqueue(Buffer.alloc(2 ** 20))
    },
  })
  const reply = await call({}, { body: chunked }).catch(() => null)
  if (reply !== null) expect(reply.status).toBe(413)
  expect(gateway.enclave.notary).toBeTruthy()
})

it.each<[string, Record<string, string>, EncryptedScript]>([
  [
    'by its enclave, before all of it was sent',
    {},
    ({ response }) => send(response, { code: 'unknown_key', message: '', status: 422 }, 422),
  ],
  [
    'by the gateway, for a notary that is not there',
    { 'affidavit-notary': `0x${'12'.repeat(20)}` },
    answering(),
  ],
])('a key that is nobody’s is refused with EHBP’s own problem: %s', async (_, headers, next) => {
  script(next)
  const reply = await call(headers, { body: Buffer.alloc(8 * 2 ** 20) })
  expect(reply.status).toBe(422)
  expect(reply.headers.get('content-type')).toBe('application/problem+json')
  expect(await reply.json()).toMatchObject({ type: KEY_CONFIG_PROBLEM })
})

it('an encrypted call is refused in the clear with what its enclave says of a call that it could not open', async () => {
  for (const [code, status] of [
    ['bad_ciphertext', 400],
    ['replayed_call', 409],
  ] as const) {
    onceWhole(async ({ response }) => {
      send(response, { code, message: 'no', status }, status)
    })
    expect(await outcomeOf(await call())).toEqual([status, code])
  }
})

it('an encrypted call is refused in the clear when its enclave answers nothing, or ends unbegun', async () => {
  onceWhole(async ({ response }) => {
    response.destroy()
  })
  expect(await outcomeOf(await call())).toEqual([503, 'enclave_unavailable'])
  onceWhole(async ({ response }) => {
    response.writeHead(200, { 'ehbp-response-nonce': SCRIPTED_NONCE }).end()
  })
  expect(await outcomeOf(await call())).toEqual([500, 'internal_server_error'])
})

it.each(['before its answer', 'within it'])(
  'the enclave is told when the caller of an encrypted call leaves %s',
  async (when) => {
    const arrived = Promise.withResolvers<ArrivedEncrypted>()
    onceWhole(async (encrypted) => {
      if (when === 'within it') begin(encrypted, 'begun')
      arrived.resolve(encrypted)
      await encrypted.left
    })
    const leaving = new AbortController()
    const reply = call({}, { signal: leaving.signal }).catch(() => null)
    const { left } = await arrived.promise
    if (when === 'within it') await (await reply)?.body?.getReader().read()
    leaving.abort()
    await left
  },
)

it('an encrypted call whose caller leaves within its upload ends at the enclave, without fault of that', async () => {
  const begun = Promise.withResolvers<void>()
  const ended = Promise.withResolvers<unknown>()
  script(({ request }) => {
    request.once('data', () => begun.resolve())
    request.once('error', ended.resolve)
    request.once('close', () => ended.resolve(null))
  })
  const leaving = new AbortController()
  let isFirst = true
  const body = new ReadableStream({
    pull(controller) {
      if (isFirst) controller.enqueue(Buffer.alloc(1024))
      isFirst = false
      return isFirst ? undefined : new Promise(() => undefined)
    },
  })
  const reply = call({}, { body, signal: leaving.signal }).catch(() => null)
  await begun.promise
  leaving.abort()
  await ended.promise
  await reply
  script(answering())
  expect((await call()).status).toBe(200)
  expect(gateway.logLines.join('')).not.toContain('"msg":"unexpected error"')
})

it('an answer that its enclave cut is cut: half of one must not look whole', async () => {
  const isRead = Promise.withResolvers<void>()
  onceWhole(async (arrived) => {
    begin(arrived, 'half')
    await isRead.promise
    arrived.response.destroy()
  })
  const reader = (await call()).body?.getReader()
  expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe('half')
  isRead.resolve()
  await expect(reader?.read()).rejects.toThrow()
})

it('an encrypted call is logged with the code of a fault that only its caller can read', async () => {
  onceWhole(async ({ response, record }) => {
    record('head', { ...HEAD, status: 502, should_retry: false, retry_after_seconds: 7 })
    record('fault', { code: 'provider_error', model: 'demo/echo' })
    record('frame', Buffer.from('sealed words'))
    response.end()
  })
  const reply = await call({ 'x-request-id': 'told-in-frames' })
  expect([reply.status, await reply.text()]).toEqual([502, 'sealed words'])
  expect(reply.headers.get('x-should-retry')).toBe('false')
  expect(reply.headers.get('retry-after')).toBe('7')
  const find = () =>
    gateway.logLines.find(
      (one) => one.includes('told-in-frames') && one.includes('"msg":"request"'),
    )
  await until('the call is logged', () => find() !== undefined)
  const line = find()
  expect(JSON.parse(line ?? '')).toMatchObject({ status: 502, error: 'provider_error' })
})

it('an encrypted call reserves the tokens that its header states, and its enclave holds to them', async () => {
  const account = `account ${crypto.randomUUID()}`
  const own = { accountName: account, name: 'k' }
  const admin = await gateway.keys.create({ ...own, scopes: ['admin'] })
  const { text: key } = await gateway.keys.create({ ...own, scopes: ['inference'] })
  const prompt = Math.ceil(BODY.length / 4)
  const bound = 2 * (prompt + 50) - 1
  const set = await fetch(`${gateway.url}/v1/admin/budgets`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${admin.text}`, 'content-type': 'application/json' },
    body: JSON.stringify({ account, what: 'tokens', per: 'total', bound }),
  })
  expect(set.status).toBe(200)
  const budgeted = { at: { ...gateway, key } }
  expect(await outcomeOf(await call({}, budgeted))).toEqual([429, 'insufficient_quota'])
  const answer = Promise.withResolvers<void>()
  const arrived = Promise.withResolvers<void>()
  script(async (one) => {
    arrived.resolve()
    await answer.promise
    await answering()(one)
  })
  const stated = { 'affidavit-answer-tokens': '50' }
  const first = call(stated, budgeted)
  await arrived.promise
  expect(newest?.call).toMatchObject({ answer_tokens_max: 50 })
  const usedOf = async () => {
    const me = (await (await getPath(budgeted.at, '/v1/dashboard/me')).json()) as KeyHolderReply
    return me.budgets[0]?.used
  }
  expect(await usedOf()).toBe(prompt + 50)
  expect(await outcomeOf(await call(stated, budgeted))).toEqual([429, 'insufficient_quota'])
  answer.resolve()
  expect((await first).status).toBe(200)
  await expect.poll(usedOf).toBe(USAGE.total_tokens)
  for (const wrong of ['0', '-1', 'many', '1.5'])
    expect(await outcomeOf(await call({ 'affidavit-answer-tokens': wrong }, budgeted))).toEqual([
      422,
      ['header.affidavit-answer-tokens'],
    ])
})

const usedBy = async (group: string) => {
  const report = await getPath(limited, '/v1/dashboard/rate-limits')
  const { usages } = (await report.json()) as { usages: readonly GroupReport[] }
  return usages.find(({ model }) => model === group)?.tokens_used_day ?? 0
}
const callLimited = async (next: EncryptedScript) => {
  script(next, limited)
  await (await call({}, { at: limited })).text()
}

it('limits of encrypted calls count what the enclave says was used, for the group of the model that it names', async () => {
  await enoughOfTheMinute()
  for (const [model, group] of [
    ['demo/dear', 'dear'],
    ['demo/echo', 'all'],
  ] as const) {
    const before = await usedBy(group)
    await callLimited(answering(['x'], { model }))
    await expect.poll(() => usedBy(group)).toBe(before + USAGE.total_tokens)
  }
  expect(await usedBy('dear')).toBe(USAGE.total_tokens)
})

it('limits of encrypted calls count about what came when its caller leaves, and nothing of a refusal', async () => {
  await enoughOfTheMinute()
  const before = await usedBy('all')
  const leaving = new AbortController()
  onceWhole(async (arrived) => {
    begin(arrived, 'x', 'x', 'x', 'x', 'x')
    await arrived.left
  }, limited)
  const reply = await call({}, { at: limited, signal: leaving.signal })
  const reader = reply.body?.getReader()
  for (let read = 0; read < 5; ) read += (await reader?.read())?.value?.length ?? 5
  leaving.abort()
  const counted = Math.ceil(BODY.length / 4) + 5
  await expect.poll(() => usedBy('all')).toBe(before + counted)
  await callLimited(async ({ request, record, response }) => {
    await readAll(request)
    record('head', { ...HEAD, status: 502 })
    record('fault', { code: 'provider_error', model: 'demo/echo' })
    response.end()
  })
  // The next one is counted after the refusal.
  await callLimited(answering())
  await expect.poll(() => usedBy('all')).toBe(before + counted + USAGE.total_tokens)
})

it('limits of encrypted calls refuse who has no token left, before anything of it is read', async () => {
  await enoughOfTheMinute()
  const before = await usedBy('all')
  await callLimited(answering(['x'], { usage: { ...USAGE, total_tokens: 5_000 } }))
  await expect.poll(() => usedBy('all')).toBe(before + 5_000)
  newest = null
  expect(await outcomeOf(await call({}, { at: limited }))).toEqual([429, 'rate_limit_exceeded'])
  expect(newest).toBe(null)
})
