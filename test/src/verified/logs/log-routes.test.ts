import { createHash } from 'node:crypto'
import { beforeAll, expect, it } from 'vitest'
import { addressOf } from '#attestation/account.ts'
import { decodeHex, encodeHex, encodeUtf8 } from '#attestation/bytes.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import { verifyConsistency, verifyInclusion } from '#attestation/merkle/verify.ts'
import { verifyTreeHead } from '#attestation/tree-head.ts'
import {
  CHAT_REQUEST,
  getPath,
  outcomeOf,
  postChat,
  VERIFIED_PATH,
} from '../../../support/calls.ts'
import { GATEWAY_HOOK_TIMEOUT_MS, startGateway, useGateway } from '../../../support/gateway.ts'
import { answerWhole, SCRIPTED_DOMAIN } from '../../../support/scripted-enclave.ts'

const COUNT = 7
const UNKNOWN = `0x${'00'.repeat(20)}`
/** In every request and every response. */
const SECRETS = ['a question that is nobody’s business', 'an answer that is nobody’s business']

type Head = {
  readonly size: number
  readonly root: string
  readonly signature: string
  readonly created_at: number
  readonly anchor: Readonly<Record<string, unknown>>
}
/** Members of the answers here; each has some of them. */
type Reply = {
  readonly root: string
  readonly public_key: string
  readonly leaf_hash: string
  readonly path: readonly string[]
  readonly heads: readonly Head[]
  readonly cursor: number | null
}

let notary: string
let root: string
const records: Readonly<Record<string, string>>[] = []

const gateway = await useGateway()
beforeAll(async () => {
  notary = gateway.enclave.notary
  gateway.enclave.setScript(answerWhole({ secret: SECRETS[1] ?? '' }))
  for (let count = 0; count < COUNT; count++) {
    const reply = await postChat(gateway, { ...CHAT_REQUEST, user: `${SECRETS[0]} ${count}` })
    records.push((await reply.json()) as Record<string, string>)
  }
  root = (await read('')).root
}, GATEWAY_HOOK_TIMEOUT_MS)

/** Without a key. */
const fetchLog = (path: string, of = notary) => fetch(`${gateway.url}/v1/log/${of}${path}`)
const read = async (path: string): Promise<Reply> => {
  const reply = await fetchLog(path)
  expect([path, reply.status]).toEqual([path, 200])
  return (await reply.json()) as Reply
}
const leafOf = ({ receipt }: Readonly<Record<string, unknown>>) =>
  encodeHex(hashLeaf(encodeUtf8(canonicalizeJson(receipt as never))))

it('a log says whose it is, what for, and where it stands', async () => {
  const log = await read('')
  expect(Object.keys(log).toSorted()).toEqual(
    ['attestation_sha256', 'boot_configuration', 'chain_id', 'contract', 'created_at', 'head']
      .concat(['notary', 'public_key', 'root', 'size'])
      .toSorted(),
  )
  const document = Buffer.from(records[0]?.attestation ?? '', 'base64')
  expect(log).toMatchObject({
    notary,
    public_key: records[0]?.public_key,
    chain_id: SCRIPTED_DOMAIN.chainId,
    contract: SCRIPTED_DOMAIN.contract,
    boot_configuration: { chain_id: SCRIPTED_DOMAIN.chainId },
    size: COUNT,
    head: null,
    attestation_sha256: createHash('sha256').update(document).digest('hex'),
  })
  expect(addressOf(decodeHex(log.public_key))).toBe(notary)
})

it('a log is in the list of logs', async () => {
  const list = await (await fetch(`${gateway.url}/v1/log`)).json()
  expect(list).toEqual({ logs: [await read('')], cursor: null })
  const after = await (await fetch(`${gateway.url}/v1/log?limit=1&cursor=${notary}`)).json()
  expect(after).toEqual({ logs: [], cursor: null })
})

it('a log lists heads that the notary signed, in pages, the last of the size of the log', async () => {
  const { heads } = await read('/heads')
  for (const { size, root: hex, signature, anchor } of heads) {
    const head = { size, root: decodeHex(hex) }
    expect(
      verifyTreeHead({ head, signature: decodeHex(signature), domain: SCRIPTED_DOMAIN, notary }),
    ).toBeDefined()
    expect(anchor).toEqual({
      tx_hash: expect.stringMatching(/^0x[0-9a-f]{64}$/),
      state: 'pending',
      block_number: null,
      block_hash: null,
    })
  }
  expect(heads.at(-1)).toMatchObject({ size: COUNT, root })
  const sizes: number[] = []
  let cursor: number | null = null
  do {
    const page: Reply = await read(`/heads?limit=2${cursor === null ? '' : `&cursor=${cursor}`}`)
    sizes.push(...page.heads.map(({ size }) => size))
    cursor = page.cursor
  } while (cursor !== null)
  expect(sizes).toEqual(heads.map(({ size }) => size))
  expect(await read('/heads?cursor=7')).toEqual({
    notary,
    heads: [],
    attestations: [],
    cursor: null,
  })
})

it('a log proves that a receipt is in it, and that it only grew', async () => {
  const [first, second] = await Promise.all(
    [4, COUNT].map(async (size) => {
      const { path, ...proof } = await read(`/inclusion?index=2&size=${size}`)
      const head = { size, root: decodeHex(proof.root) }
      const leaf_hash = leafOf(records[2] ?? {})
      expect(proof).toEqual({ notary, index: 2, size, root: proof.root, leaf_hash })
      const leafHash = decodeHex(leaf_hash)
      verifyInclusion({ leafHash, index: 2, path: path.map(decodeHex), head })
      return head
    }),
  )
  expect(await read('/inclusion?index=2')).toMatchObject({ size: COUNT, root })
  const { path, ...rest } = await read('/consistency?from=4&to=7')
  expect(rest).toEqual({ notary, from: 4, to: 7 })
  if (first && second) verifyConsistency({ first, second, path: path.map(decodeHex) })
  expect(await read('/consistency?from=3')).toMatchObject({ from: 3, to: COUNT })
})

it('a log gives the hashes of its leaves', async () => {
  const leaves = records.map(leafOf)
  expect(await read('/leaves')).toEqual({ notary, start: 0, end: COUNT, leaves })
  expect(await read('/leaves?start=2&end=5')).toMatchObject({
    end: 5,
    leaves: leaves.slice(2, 5),
  })
  expect(await read('/leaves?start=7')).toEqual({ notary, start: COUNT, end: COUNT, leaves: [] })
})

it.each([
  ['?limit=0', 'query.limit'],
  ['?limit=1001', 'query.limit'],
  ['?cursor=x', 'query.cursor'],
  [`?cursor=${UNKNOWN}`, 'query.cursor'],
])('logs are not listed by the query %s', async (query, loc) => {
  expect(await outcomeOf(await fetch(`${gateway.url}/v1/log${query}`))).toEqual([422, [loc]])
})

it.each([
  ['/heads?limit=0', 'limit'],
  ['/heads?limit=1001', 'limit'],
  ['/heads?cursor=-1', 'cursor'],
  ['/heads?order=DESC', 'order'],
  ['/heads?order=asc&order=desc', 'order'],
  ['/inclusion', 'index'],
  ['/inclusion?index=1e3', 'index'],
  ['/inclusion?index=7', 'index'],
  ['/inclusion?index=3&size=3', 'index'],
  ['/inclusion?index=0&size=0', 'index'],
  ['/inclusion?index=0&size=8', 'size'],
  ['/inclusion?index=0&size=99999999999999999999', 'size'],
  ['/consistency', 'from'],
  ['/consistency?from=8', 'from'],
  ['/consistency?from=4&to=3', 'from'],
  ['/consistency?from=4&to=8', 'to'],
  ['/leaves?start=8', 'start'],
  ['/leaves?start=4&end=3', 'start'],
  ['/leaves?end=8', 'end'],
  ['/leaves?start=&end=1', 'start'],
])('a log refuses the read %s', async (path, name) => {
  expect(await outcomeOf(await fetchLog(path))).toEqual([422, [`query.${name}`]])
})

it('a notary that is malformed is told from one that has no log', async () => {
  for (const path of ['', '/heads', '/inclusion?index=0', '/consistency?from=0', '/leaves']) {
    expect(await outcomeOf(await fetchLog(path, UNKNOWN))).toEqual([404, 'not_found'])
    for (const text of ['x', `${notary}0`, notary.slice(0, -1), '%zz', '..%2f..'])
      expect(await outcomeOf(await fetchLog(path, text))).toEqual([422, ['path.notary']])
  }
})

const path = (query: string, of = notary) => `/v1/log/${of}/records${query}`
const page = async (query: string, of = gateway) => {
  const reply = await getPath(of, path(query, of.enclave.notary))
  const body = (await reply.json()) as {
    records: readonly { readonly hash: string; readonly receipt: { readonly index: number } }[]
    next: number | null
  }
  return { ...body, indexes: body.records.map(({ receipt }) => receipt.index) }
}

it('the records of a log need a key', async () => {
  expect(await outcomeOf(await fetchLog('/records'))).toEqual([401, 'authorization_missing'])
})

it('the records of a log are those of the history, in the order of the leaves', async () => {
  const { records: found, next } = await page('')
  expect(next).toBeNull()
  const history = (await (await getPath(gateway, VERIFIED_PATH)).json()) as {
    completions: readonly unknown[]
  }
  expect(found).toEqual(history.completions.toReversed())
})

it.each([
  ['?start=8', 'query.start'],
  ['?start=-1', 'query.start'],
  ['?limit=0', 'query.limit'],
  ['?limit=101', 'query.limit'],
])('the records of a log refuse the query %s', async (query, loc) => {
  expect(await outcomeOf(await getPath(gateway, path(query)))).toEqual([422, [loc]])
})

it(
  'the records of a log are the caller’s own alone where histories are kept apart',
  async () => {
    const closed = await startGateway({ settings: { isHistoryOpen: false } })
    closed.enclave.setScript(answerWhole({}))
    const { text: key } = await closed.keys.create({ accountName: 'others', name: 'k' })
    for (const caller of [closed.key, key, closed.key, key, key, closed.key])
      await postChat(closed, CHAT_REQUEST, { headers: { authorization: `Bearer ${caller}` } })
    expect(await page('', closed)).toMatchObject({ indexes: [0, 2, 5], next: null })
    const other = { ...closed, key }
    expect(await page('?limit=2', other)).toMatchObject({ indexes: [1, 3], next: 4 })
    expect(await page('?start=4&limit=2', other)).toMatchObject({ indexes: [4], next: null })
    expect(await page('?start=5', other)).toMatchObject({ indexes: [], next: null })
    await closed.stop()
  },
  GATEWAY_HOOK_TIMEOUT_MS,
)
