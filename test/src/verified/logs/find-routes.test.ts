import { expect, it } from 'vitest'
import { CHAT_REQUEST, outcomeOf, postChat } from '../../../support/calls.ts'
import {
  GATEWAY_HOOK_TIMEOUT_MS,
  startGateway,
  type TestGateway,
  useGateway,
} from '../../../support/gateway.ts'
import { answerWhole } from '../../../support/scripted-enclave.ts'

const SECRETS = ['a question in private', 'an answer in private']
const NOTHING = { completion: null, restricted: false, log: null, heads: [], more_heads: false }

const gateway = await useGateway()
const { notary } = gateway.enclave
/** A verified completion, as its caller gets it. */
const ask = async (at: TestGateway, user: string): Promise<Readonly<Record<string, string>>> => {
  const reply = await postChat(at, { ...CHAT_REQUEST, user })
  return (await reply.json()) as Readonly<Record<string, string>>
}
gateway.enclave.setScript(answerWhole({ secret: SECRETS[1] ?? '' }))
await ask(gateway, SECRETS[0] ?? '')
const record = await ask(gateway, 'another')

/** Without a key. */
const search = (q: string, at = gateway) => fetch(`${at.url}/v1/find?q=${encodeURIComponent(q)}`)
const find = async (q: string, at = gateway) => {
  const reply = await search(q, at)
  expect([q, reply.status]).toEqual([q, 200])
  return (await reply.json()) as { readonly heads: readonly unknown[] }
}

it('the search finds a completion by its hash, and which leaf it is', async () => {
  const hash = record.hash ?? ''
  const found = { ...NOTHING, completion: { hash, notary, index: 1 } }
  for (const q of [hash, `0x${hash}`, ` ${hash.toUpperCase()} `])
    expect(await find(q)).toEqual(found)
})

it('the search finds the log of a notary, and the head that a transaction anchors', async () => {
  const log = { notary, size: 2 }
  for (const q of [notary, notary.slice(2).toUpperCase()])
    expect(await find(q)).toEqual({ ...NOTHING, log })
  const { heads } = await find(record.tx_hash ?? '')
  expect(heads).toMatchObject([
    { notary, size: 2, anchor: { tx_hash: record.tx_hash, state: 'pending' } },
  ])
})

it.each([['0'.repeat(64)], [`0x${'0'.repeat(40)}`], ['999999999999999']])(
  'the search for %s, which is not here, finds nothing',
  async (q) => expect(await find(q)).toEqual(NOTHING),
)

it.each([[''], ['0x12'], ['x'.repeat(64)], ['-1'], ['1'.repeat(16)], ['hello'], ['1.5']])(
  'the search refuses the text %j as a query',
  async (q) => expect(await outcomeOf(await search(q))).toEqual([422, ['query.q']]),
)

it('the search gives no content, no account and no hash that was not asked for', async () => {
  const texts = []
  for (const q of [record.hash, notary, record.tx_hash])
    texts.push(JSON.stringify(await find(q ?? '')))
  const secrets = ['private', CHAT_REQUEST.model, gateway.accountId]
  expect(texts.filter((text) => secrets.some((secret) => text.includes(secret)))).toEqual([])
  expect(texts.slice(1).filter((text) => text.includes(record.hash ?? '-'))).toEqual([])
})

it(
  'the search finds no completion where the operator keeps evidence to accounts, and says so',
  async () => {
    const closed = await startGateway({ settings: { isEvidencePublic: false } })
    closed.enclave.setScript(answerWhole({}))
    const { hash = '', tx_hash = '' } = await ask(closed, 'closed')
    const nothing = { ...NOTHING, restricted: true }
    expect(await find(hash, closed)).toEqual(nothing)
    expect(await find('0'.repeat(64), closed)).toEqual(nothing)
    expect(await find(tx_hash, closed)).toMatchObject({ restricted: true, heads: [{ size: 1 }] })
    await closed.stop()
  },
  GATEWAY_HOOK_TIMEOUT_MS,
)
