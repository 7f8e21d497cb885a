import { randomBytes } from 'node:crypto'
import { beforeAll, expect, it } from 'vitest'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { type Edge, emptyEdge } from '#attestation/merkle/edge.ts'
import type { PullReply, SealedCompletion } from '#enclave/protocol/enclave-api.ts'
import {
  type BatchFault,
  BatchRefused,
  checkBatch,
  checkIdentity,
  type Notary,
} from '#src/verified/commits/check-batch.ts'
import { createScriptedLog, type ScriptedLog, TEST_DOMAIN } from '../../../support/scripted-log.ts'

const never = new AbortController().signal

let log: ScriptedLog
let notary: Notary
/** Two leaves that are stored, and the edge after them. */
let edge: Edge
/** Leaves 2 to 4. */
let reply: PullReply

beforeAll(async () => {
  log = await createScriptedLog()
  notary = checkIdentity(await log.enclave.identity(), TEST_DOMAIN)
  log.seal()
  log.seal()
  const stored = await pull(0)
  edge = checkBatch(stored, { notary, edge: emptyEdge, known: null }).edge
  for (let count = 0; count < 3; count++) log.seal()
  reply = await pull(2)
})

const pull = (from: number, known: string | null = null) =>
  log.enclave.pull({ from, wait_ms: 0, max: 100, known_document: known }, never)
const check = (changed: PullReply) => checkBatch(changed, { notary, edge, known: null })
const withCompletion = (at: number, members: Partial<SealedCompletion>): PullReply => ({
  ...reply,
  completions: reply.completions.map((sealed, offset) =>
    offset === at ? { ...sealed, ...members } : sealed,
  ),
})
const at = (offset: number) => reply.completions[offset] ?? expect.unreachable()
const codeOf = (run: () => unknown): BatchFault | null => {
  try {
    run()
    return null
  } catch (error) {
    if (error instanceof BatchRefused) return error.code
    throw error
  }
}
const changeReceipt = (members: Readonly<Record<string, unknown>>): PullReply => {
  const receipt = JSON.parse(JSON.stringify({ ...JSON.parse(at(1).receipt), ...members }))
  return withCompletion(1, { receipt: canonicalizeJson(receipt) })
}

it('checkBatch takes what the enclave gives, and says what to store of it', () => {
  const batch = check(reply)
  expect(batch.completions.map(({ sealed }) => sealed.index)).toEqual([2, 3, 4])
  expect(batch.edge.size).toBe(5)
  expect(batch.head.size).toBe(5)
  expect(batch.nodes.map(({ level, index }) => [level, index])).toEqual([
    [0, 2],
    [0, 3],
    [1, 1],
    [2, 0],
    [0, 4],
  ])
  expect([...batch.documents.keys()]).toEqual([at(0).document])
})

it('checkBatch takes an encrypted completion without its texts alone, by the hashes of its receipt', async () => {
  const own = await createScriptedLog()
  own.seal({ isEncrypted: true })
  const pulled = await own.enclave.pull(
    { from: 0, wait_ms: 0, max: 1, known_document: null },
    never,
  )
  const stored = {
    notary: checkIdentity(await own.enclave.identity(), TEST_DOMAIN),
    edge: emptyEdge,
    known: null,
  }
  const [taken] = checkBatch(pulled, stored).completions
  expect(taken?.sealed).toMatchObject({ request: null, response: null })
  expect(taken?.receipt).toMatchObject({ encrypted: true })
  for (const more of [{ request: '{}' }, { response: '{}' }]) {
    const completions = pulled.completions.map((sealed) => ({ ...sealed, ...more }))
    expect(codeOf(() => checkBatch({ ...pulled, completions }, stored))).toBe('wrong_hash')
  }
})

it('checkBatch takes a document that was left out because it is known', async () => {
  const digest = at(0).document
  const known = { digest, base64: reply.documents[digest] ?? '' }
  const batch = checkBatch(await pull(2, digest), { notary, edge, known })
  expect(batch.documents.size).toBe(0)
  expect(batch.completions.map(({ document }) => document)).toEqual([known, known, known])
})

it('checkBatch refuses a document that is neither given nor known', async () => {
  const without = await pull(2, at(0).document)
  expect(codeOf(() => check(without))).toBe('invalid_document')
})

const faults: Record<Exclude<BatchFault, 'wrong_identity'>, Record<string, () => PullReply>> = {
  wrong_index: {
    'an index that leaves a gap': () => withCompletion(1, { index: 4 }),
    'completions in another order': () => ({
      ...reply,
      completions: reply.completions.toReversed(),
    }),
  },
  unstorable_text: {
    'U+0000 in a text': () => withCompletion(0, { request: `${at(0).request}\0` }),
    'a lone surrogate in a text': () => withCompletion(2, { response: '"\ud800"' }),
  },
  invalid_receipt: {
    'a receipt that is no JSON': () => withCompletion(0, { receipt: '{' }),
    'a receipt with a blank': () => withCompletion(0, { receipt: ` ${at(0).receipt}` }),
    'a receipt with a member more': () => changeReceipt({ more: 1 }),
    'a receipt without a member': () => changeReceipt({ model: undefined }),
  },
  wrong_hash: {
    'a receipt of another index': () => changeReceipt({ index: 9 }),
    'a receipt of another hash': () =>
      changeReceipt({ hash: nearly(JSON.parse(at(1).receipt).hash) }),
    'another request': () => withCompletion(1, { request: at(0).request }),
    'another response': () => withCompletion(1, { response: at(0).response }),
    'no request, of a call that was not encrypted': () => withCompletion(1, { request: null }),
    'no content of it': () => withCompletion(1, { request: null, response: null }),
  },
  invalid_signature: {
    'a signature that is too short': () =>
      withCompletion(1, { signature: at(1).signature.slice(0, -2) }),
    'a signature in upper case': () =>
      withCompletion(1, { signature: `0x${at(1).signature.slice(2).toUpperCase()}F` }),
  },
  invalid_document: {
    'a document under another digest': () => withDocument(at(0).document, 'AAAA'),
    'a document that is no base64': () => withDocument('0'.repeat(64), '*'),
    'a digest that is no digest': () => withDocument('x', ''),
  },
  invalid_head: {
    'a completion less': () => ({ ...reply, completions: reply.completions.slice(0, 2) }),
    'no head': () => ({ ...reply, head: null }),
    'a head that claims more': () => withHead({ size: 6 }),
    'a head without a root': () => withHead({ root: '' }),
  },
  wrong_root: {
    'a head with another root': () => withHead({ root: nearly(reply.head?.root ?? '') }),
    'a changed outcome': () => changeReceipt({ outcome: 'upstream_error' }),
  },
  wrong_head_signature: {
    'a signature of nobody': () => withHead({ signature: `0x${'11'.repeat(65)}` }),
  },
}
const rows = Object.entries(faults).flatMap(([code, changes]) =>
  Object.entries(changes).map(([what, change]) => [what, code, change] as const),
)

it.each(rows)('checkBatch refuses a batch with %s: %s', (_, code, change) => {
  expect(codeOf(() => check(change()))).toBe(code)
})

const withDocument = (digest: string, base64: string): PullReply => ({
  ...reply,
  documents: { ...reply.documents, [digest]: base64 },
})
/** Another in the last digit alone. */
const nearly = (hex: string) => hex.replace(/.$/, (last) => (last === '0' ? '1' : '0'))

function withHead(members: Partial<NonNullable<PullReply['head']>>): PullReply {
  return { ...reply, head: reply.head && { ...reply.head, ...members } }
}

it('checkBatch refuses a head that another notary signed', async () => {
  const other = await createScriptedLog()
  const stranger = checkIdentity(await other.enclave.identity(), TEST_DOMAIN)
  expect(codeOf(() => checkBatch(reply, { notary: stranger, edge, known: null }))).toBe(
    'wrong_head_signature',
  )
})

it('checkBatch refuses a head for another chain', () => {
  const elsewhere = { ...notary, domain: { ...TEST_DOMAIN, chainId: 1 } }
  expect(codeOf(() => checkBatch(reply, { notary: elsewhere, edge, known: null }))).toBe(
    'wrong_head_signature',
  )
})

it('checkBatch refuses what follows another history than the stored one', () => {
  const forged = { ...edge, hashes: edge.hashes.map(() => new Uint8Array(randomBytes(32))) }
  expect(codeOf(() => checkBatch(reply, { notary, edge: forged, known: null }))).toBe('wrong_root')
})

it("checkBatch does not detect a completion's signature by another key: readers of the record do", () => {
  const forged = withCompletion(1, {
    signature: `0x${'5a'.repeat(65)}`,
  })
  expect(codeOf(() => check(forged))).toBeNull()
})

it('checkIdentity gives the notary of an enclave that signs for our contract', async () => {
  const log = await createScriptedLog()
  const identity = await log.enclave.identity()
  expect(checkIdentity(identity, TEST_DOMAIN)).toEqual({
    address: log.notary(),
    publicKey: identity.public_key,
    domain: TEST_DOMAIN,
  })
})

it('checkIdentity refuses an address that is not that of the key', async () => {
  const identity = await (await createScriptedLog()).enclave.identity()
  const other = await (await createScriptedLog()).enclave.identity()
  expect(() => checkIdentity({ ...identity, notary: other.notary }, TEST_DOMAIN)).toThrow(
    BatchRefused,
  )
})

it.each([{ chainId: 1 }, { contract: `0x${'cd'.repeat(20)}` }])(
  'checkIdentity refuses an enclave for another domain: %o',
  async (change) => {
    const identity = await (await createScriptedLog()).enclave.identity()
    expect(() => checkIdentity(identity, { ...TEST_DOMAIN, ...change })).toThrow(
      /expected an enclave for contract/,
    )
  },
)
