import { expect, it } from 'vitest'
import { parseEvidenceBundle, redactBundle } from '#attestation/evidence/bundle.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { verifyRecord } from '#attestation/verify-record.ts'
import { ECHOED_MEMBERS } from '#src/verified/records/record-text.ts'
import {
  CHAT_REQUEST,
  getPath,
  outcomeOf,
  postChat,
  VERIFIED_PATH,
} from '../../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, useGateway } from '../../../support/gateway.ts'
import { answerWhole, send } from '../../../support/scripted-enclave.ts'

type Page = {
  readonly completions: readonly Record<string, unknown>[]
  readonly cursor: string | null
}

/** Of the calls that were made: `first` … `fifth`, the last by the other account. */
const hashes: string[] = []

const gateway = await useGateway()
gateway.enclave.setScript(answerWhole({}))
const { text: otherKey } = await gateway.keys.create({ accountName: 'others', name: 'k' })
for (const user of ['first', 'second', 'third', 'fourth', 'fifth']) {
  const key = user === 'fifth' ? otherKey : gateway.key
  const reply = await postChat({ ...gateway, key }, { ...CHAT_REQUEST, user })
  hashes.push(((await reply.json()) as { hash: string }).hash)
}

const pageOf = async (query: string, of = gateway): Promise<Page> =>
  (await (await getPath(of, VERIFIED_PATH + query)).json()) as Page
const hashesOf = ({ completions }: Page) => completions.map(({ hash }) => hash)

it("the list of the history gives the caller's own, newest first", async () => {
  const page = await pageOf('')
  expect(hashesOf(page)).toEqual(hashes.slice(0, 4).reverse())
  expect(page.cursor).toBeNull()
})

it("the list of the history gives everybody's with filter=all", async () => {
  expect(hashesOf(await pageOf('?filter=all'))).toEqual(hashes.toReversed())
  expect(hashesOf(await pageOf('', { ...gateway, key: otherKey }))).toEqual(hashes.slice(4))
})

it('the list of the history gives records of the very shape of the interface, whose proof holds', async () => {
  const reply = await getPath(gateway, `${VERIFIED_PATH}?limit=1`)
  const page = parseExactJson(new Uint8Array(await reply.arrayBuffer())) as never as {
    completions: readonly [Record<string, never>]
  }
  const [record] = page.completions
  const proof =
    'attestation created_at hash id log public_key receipt request response signature tx_hash'
  expect(Object.keys(record).sort()).toEqual(proof.split(' '))
  expect(record.id).toMatch(/^[0-9a-f]{8}-/)
  expect(Number.isInteger(record.created_at)).toBe(true)
  expect(Object.keys(record.request ?? {})).toEqual([...ECHOED_MEMBERS])
  expect((record.request as { messages: unknown } | undefined)?.messages).toEqual([
    { content: 'hello', function_call: null, role: 'user', name: null },
  ])
  const { checks } = verifyRecord(record, { decodeAttestation: decodeAttestationPayload })
  expect(checks.filter(({ outcome }) => outcome === 'failed')).toEqual([])
  expect(checks.filter(({ outcome }) => outcome === 'not checked').map(({ name }) => name)).toEqual(
    ['stream hash', 'anchor'],
  )
})

it.each([
  ['?limit=x&filter=y', ['query.limit', 'query.filter']],
  ['?cursor=6f1c8f0e-6f0b-4a55-9b0e-3f7a1f0f3a11', ['query.cursor']],
])('the list of the history refuses %s', async (query, locs) => {
  expect(await outcomeOf(await getPath(gateway, VERIFIED_PATH + query))).toEqual([422, locs])
})

it("the list of the history refuses another account's cursor for the caller's own list", async () => {
  const { completions } = await pageOf('?filter=all&limit=1')
  const foreign = `${VERIFIED_PATH}?cursor=${completions[0]?.id}`
  expect(await outcomeOf(await getPath(gateway, foreign))).toEqual([422, ['query.cursor']])
})

it('the list of the history needs a key', async () => {
  expect(await outcomeOf(await fetch(gateway.url + VERIFIED_PATH))).toEqual([
    401,
    'authorization_missing',
  ])
})

it.each([
  ['?model=none', 0],
  [`?model=${CHAT_REQUEST.model}&outcome=complete&encrypted=false`, 4],
  ['?outcome=upstream_error', 0],
  ['?encrypted=true', 0],
  ['?until=1', 0],
  ['?since=1', 4],
  ['?q=SECOND', 0],
  ['?q=HELL', 4],
  [`?q=${encodeURIComponent('messages')}`, 0],
  [`?q=${encodeURIComponent("%' or '1'='1")}`, 0],
  ['?q=hell&model=none', 0],
])('the query %s gives %i records of the history', async (query, count) => {
  const page = await pageOf(query)
  expect([page.completions.length, page.cursor]).toEqual([count, null])
})

it('the list of the history with filters searches own completions alone', async () => {
  const reply = await getPath(gateway, `${VERIFIED_PATH}?filter=all&q=hello`)
  expect(await outcomeOf(reply)).toEqual([422, ['query.q']])
})

const RECORDS = '/v1/verified/records'
type Shown = { readonly hash: string; readonly dialect: string; readonly request: object | null }
const answers = {
  responses: { id: 'resp_1', object: 'response', model: 'demo/echo', status: 'completed' },
  messages: { id: 'msg_1', type: 'message', model: 'demo/echo', stop_reason: 'end_turn' },
}
const agents = await useGateway()

const ask = async (path: string, body: object): Promise<string> => {
  const reply = await fetch(`${agents.url}/v1/verified${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${agents.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'demo/echo', ...body }),
  })
  const text = await reply.text()
  return /"hash":"([0-9a-f]{64})"/.exec(text)?.[1] ?? expect.fail(text)
}
const listOf = async (query: string, path = RECORDS) =>
  (await (await getPath(agents, path + query)).json()) as {
    readonly completions: readonly Shown[]
    readonly cursor: string | null
  }

const script = (answer: object) =>
  agents.enclave.setScript(({ response, seal }) => send(response, seal({ ...answer })))
script(answers.responses)
const responses = await ask('/responses', { input: 'hello' })
script(answers.messages)
const asked = { max_tokens: 9, messages: [{ role: 'user', content: 'hello' }] }
const messages = await ask('/anthropic/messages', asked)
agents.enclave.setScript(answerWhole({}))
const chat = await ask('/chat/completions', { messages: asked.messages })

it('the list of all dialects shows each record with its dialect, in the form of its dialect', async () => {
  const { completions } = await listOf('')
  expect(completions).toMatchObject([
    { hash: chat, dialect: 'chat', request: { model: 'demo/echo' } },
    { hash: messages, dialect: 'messages', request: { dialect: 'messages', headers: {} } },
    { hash: responses, dialect: 'responses', request: { body: { input: 'hello' } } },
  ])
  for (const record of completions) {
    const stored = Object.entries(record).filter(([name]) => name !== 'dialect')
    const bytes = Buffer.from(JSON.stringify(Object.fromEntries(stored)))
    const { checks } = verifyRecord(parseExactJson(bytes))
    expect(checks.filter(({ outcome }) => outcome === 'failed')).toEqual([])
  }
})

it('the list of all dialects is filtered by dialect, and cut in pages', async () => {
  const filtered = async (query: string) =>
    (await listOf(query)).completions.map(({ hash }) => hash)
  expect(await filtered('?dialect=responses')).toEqual([responses])
  expect(await filtered('?dialect=messages&q=HELLO')).toEqual([messages])
  expect(await filtered('?dialect=chat&model=none')).toEqual([])
  const seen: string[] = []
  for (let cursor: string | null = ''; cursor !== null; ) {
    const after: string = cursor === '' ? '' : `&cursor=${cursor}`
    const page = await listOf(`?limit=1${after}`)
    seen.push(...page.completions.map(({ hash }) => hash))
    cursor = page.cursor
  }
  expect(seen).toEqual([chat, messages, responses])
  const refused = await getPath(agents, `${RECORDS}?dialect=completions`)
  expect(await outcomeOf(refused)).toEqual([422, ['query.dialect']])
})

it('the list of chats has no record of another dialect, and no member for it', async () => {
  const { completions } = await listOf('?dialect=responses', VERIFIED_PATH)
  expect(completions.map(({ hash }) => hash)).toEqual([chat])
  expect(completions[0]).not.toHaveProperty('dialect')
})

it('a record of another dialect has evidence, and stays without its content once it is erased', async () => {
  const path = `${RECORDS}/${responses}`
  const evidence = await (await getPath(agents, `${path}/evidence`)).arrayBuffer()
  const bundle = parseEvidenceBundle(parseExactJson(new Uint8Array(evidence)))
  expect(bundle.record).toMatchObject({ hash: responses, request: { body: { input: 'hello' } } })
  const headers = { authorization: `Bearer ${agents.key}` }
  const reply = await fetch(`${agents.url}${path}?reason=law`, { method: 'DELETE', headers })
  const erased = {
    dialect: 'responses',
    request: null,
    response: null,
    redacted: true,
    erased: { by: 'account', reason: 'law' },
  }
  expect(await reply.json()).toMatchObject(erased)
  expect(await (await getPath(agents, path)).json()).toMatchObject(erased)
  expect((await listOf('?dialect=responses')).completions).toMatchObject([erased])
  const after = await (await getPath(agents, `${path}/evidence`)).json()
  expect(after).toMatchObject({ record: { hash: responses, erased: { reason: 'law' } } })
  expect(JSON.stringify(after)).not.toContain('hello')
})

it('a lookup of the history by hash gives the first of two records of the same completion', async () => {
  const { completions } = await pageOf('?limit=1000')
  const first = completions.find(({ hash }) => hash === hashes[0])
  await postChat(gateway, { ...CHAT_REQUEST, user: 'first' })
  const found = await (await getPath(gateway, `${VERIFIED_PATH}/${hashes[0]}`)).json()
  expect(found).toMatchObject({ id: first?.id })
})

const fetchEvidence = (hash: string) => fetch(`${gateway.url}/v1/evidence/${hash}`)

it('public evidence is the bundle without what was asked and answered, and needs no key', async () => {
  const [hash = ''] = hashes
  const own = await getPath(gateway, `${VERIFIED_PATH}/${hash}/evidence`)
  const whole = parseEvidenceBundle(parseExactJson(new Uint8Array(await own.arrayBuffer())))
  const reply = await fetchEvidence(`0x${hash.toUpperCase()}`)
  expect(reply.status).toBe(200)
  const bytes = new Uint8Array(await reply.arrayBuffer())
  const bundle = parseEvidenceBundle(parseExactJson(bytes))
  expect(bundle).toEqual(redactBundle(whole, { request: true, response: true }))
  const text = Buffer.from(bytes).toString()
  for (const hidden of [gateway.accountId, 'hello', 'first']) expect(text).not.toContain(hidden)
})

it(
  'a gateway that keeps histories apart shows each account its own alone, in lists and lookups',
  async () => {
    const closed = await startGateway({
      settings: { isHistoryOpen: false, isEvidencePublic: false },
    })
    closed.enclave.setScript(answerWhole({}))
    const { text: key } = await closed.keys.create({ accountName: 'others', name: 'k' })
    const { hash } = (await (await postChat(closed, CHAT_REQUEST)).json()) as { hash: string }
    expect((await getPath(closed, `${VERIFIED_PATH}/${hash}`)).status).toBe(200)
    for (const unread of [hash, '00'.repeat(32)])
      expect(await outcomeOf(await fetch(`${closed.url}/v1/evidence/${unread}`))).toEqual([
        403,
        'evidence_restricted',
      ])
    const other = { ...closed, key }
    expect(await outcomeOf(await getPath(other, `${VERIFIED_PATH}/${hash}`))).toEqual([
      404,
      'not_found',
    ])
    expect(await outcomeOf(await getPath(other, `${VERIFIED_PATH}?filter=all`))).toEqual([
      403,
      'history_restricted',
    ])
    expect(await pageOf('', other)).toEqual({ completions: [], cursor: null })
    const scopes = ['inference', 'history:all'] as const
    const { text: auditor } = await closed.keys.create({
      accountName: 'auditors',
      name: 'k',
      scopes,
    })
    const viewer = { ...closed, key: auditor }
    expect((await getPath(viewer, `${VERIFIED_PATH}/${hash}`)).status).toBe(200)
    expect((await getPath(viewer, `${VERIFIED_PATH}/${hash}/evidence`)).status).toBe(200)
    expect(await pageOf('?filter=all', viewer)).toMatchObject({ completions: [{ hash }] })
    expect(await pageOf('?filter=mine', viewer)).toEqual({ completions: [], cursor: null })
    await closed.stop()
  },
  GATEWAY_HOOK_TIMEOUT_MS,
)
