import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { decodeHex, encodeUtf8 } from '#attestation/bytes.ts'
import { appendLeaves, emptyEdge, rootOf } from '#attestation/merkle/edge.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import { verifyTreeHead } from '#attestation/tree-head.ts'
import { Space } from '#enclave/log/memory-budget.ts'
import { NotaryLog, PULL_BYTES_MAX } from '#enclave/log/notary-log.ts'
import { makeAccount, type NotaryAccount } from '#enclave/notary-key.ts'
import { COMPLETION_BYTES_MAX, type PullReply } from '#enclave/protocol/enclave-api.ts'
import { replyBytesMax } from '#src/enclaves/enclave-client.ts'

const domain = { chainId: 31337, contract: '0x5fbdb2315678afecb367f032d93f642f64180aa3' }
const documents = ['d0', 'd1'].map((digest) => ({
  digest,
  base64: `base64 of ${digest}`,
  leafNotAfterMs: 0,
}))
const all = { max: 1000, known_document: null }

let account: NotaryAccount
beforeAll(async () => {
  account = await makeAccount(async (length) => new Uint8Array(randomBytes(length)))
})

function makeLog() {
  const space = new Space(1e9)
  return { space, log: new NotaryLog({ account, domain, space }) }
}

function append(
  log: NotaryLog,
  options: { readonly bytes?: number; readonly text?: string; readonly document?: number } = {},
): void {
  const index = log.size
  const receipt = `receipt ${index}`
  const document = documents[options.document ?? 0]
  if (document === undefined) throw new Error('no such document')
  log.append({
    completion: {
      index,
      request: (options.text ?? 'r').repeat(options.bytes ?? 10),
      response: 's',
      receipt,
      signature: '0x',
      context: `context ${index}`,
    },
    leafHash: hashLeaf(encodeUtf8(receipt)),
    document,
  })
}

const indexesOf = ({ completions }: PullReply) => completions.map(({ index }) => index)

/** Checks a reply's head against the leaves from the very first on. */
function expectHead(reply: PullReply, size: number): void {
  const leaves = Array.from({ length: size }, (_, index) =>
    hashLeaf(encodeUtf8(`receipt ${index}`)),
  )
  const root = rootOf(appendLeaves(emptyEdge, leaves).edge)
  expect(reply.head?.size).toBe(size)
  expect(decodeHex(reply.head?.root ?? '')).toEqual(root)
  const signature = decodeHex(reply.head?.signature ?? '')
  expect(
    verifyTreeHead({ domain, head: { size, root }, signature, notary: account.notary }).size,
  ).toBe(size)
}

describe('NotaryLog', () => {
  it('NotaryLog has a head of all leaves, however many were handed over or acknowledged', () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom('append', 'pull', 'acknowledge'), { maxLength: 30 }),
        (steps) => {
          const { log } = makeLog()
          let given = 0
          for (const step of steps) {
            if (step === 'append') append(log)
            else if (step === 'pull')
              given = log.pull({ from: log.acknowledged, ...all }).completions.length
            else log.acknowledge(log.acknowledged + Math.min(given, log.size - log.acknowledged))
            if (step === 'acknowledge') given = 0
            const leaves = Array.from({ length: log.size }, (_, index) =>
              hashLeaf(encodeUtf8(`receipt ${index}`)),
            )
            expect(log.head()).toEqual({
              size: log.size,
              root: rootOf(appendLeaves(emptyEdge, leaves).edge),
            })
          }
        },
      ),
    )
  })

  it('NotaryLog gives completions in order with a head over exactly those', () => {
    const { log } = makeLog()
    for (let count = 0; count < 5; count++) append(log)
    const reply = log.pull({ from: 0, max: 3, known_document: null })
    expect(indexesOf(reply)).toEqual([0, 1, 2])
    expect(reply.completions[1]).toEqual({
      index: 1,
      request: 'rrrrrrrrrr',
      response: 's',
      receipt: 'receipt 1',
      signature: '0x',
      document: 'd0',
      context: 'context 1',
    })
    expectHead(reply, 3)
  })

  it('NotaryLog forgets what is acknowledged, and its bytes', () => {
    const { log, space } = makeLog()
    append(log, { bytes: 1000 })
    append(log, { bytes: 2000 })
    log.pull({ from: 0, ...all })
    const reply = log.pull({ from: 1, ...all })
    expect(indexesOf(reply)).toEqual([1])
    expectHead(reply, 2)
    expect(space.used).toBeGreaterThan(2000)
    expect(space.used).toBeLessThan(2100)
    expect(log.pull({ from: 2, ...all }).completions).toEqual([])
    expect(space.used).toBe(0)
    expect([log.size, log.acknowledged]).toEqual([2, 2])
  })

  it('NotaryLog refuses an index that was acknowledged, and one beyond what was handed over', () => {
    const { log } = makeLog()
    append(log)
    append(log)
    const conflict = expect.objectContaining({
      fault: expect.objectContaining({ status: 409, code: 'log_conflict' }),
    })
    expect(() => log.pull({ from: 1, ...all })).toThrow(conflict)
    expect(() => log.pull({ from: 3, ...all })).toThrow(conflict)
    log.pull({ from: 0, max: 1, known_document: null })
    expect(() => log.pull({ from: 2, ...all })).toThrow(conflict)
    log.pull({ from: 1, ...all })
    expect(() => log.pull({ from: 0, ...all })).toThrow(conflict)
    expect(indexesOf(log.pull({ from: 1, ...all }))).toEqual([1])
  })

  it('NotaryLog takes only completions whose JSON in a pull every gateway reads', () => {
    const text = 'é"'
    const { log, space } = makeLog()
    const lengthMax = Math.floor((COMPLETION_BYTES_MAX - 100) / 4)
    const tooLarge = expect.objectContaining({
      fault: expect.objectContaining({ code: 'answer_too_large' }),
    })
    expect(() => append(log, { text, bytes: lengthMax + 26 })).toThrow(tooLarge)
    expect([log.size, space.used]).toEqual([0, 0])
    append(log, { text, bytes: lengthMax })
    const reply = Buffer.byteLength(JSON.stringify(log.pull({ from: 0, ...all })))
    expect(reply).toBeGreaterThan(COMPLETION_BYTES_MAX - 100)
    expect(reply).toBeLessThan(replyBytesMax(0))
  })

  it('NotaryLog gives the documents that the completions name, but for the known one', () => {
    const { log } = makeLog()
    append(log)
    append(log, { document: 1 })
    expect(log.pull({ from: 0, ...all }).documents).toEqual({
      d0: 'base64 of d0',
      d1: 'base64 of d1',
    })
    expect(log.pull({ from: 0, max: 9, known_document: 'd0' }).documents).toEqual({
      d1: 'base64 of d1',
    })
    expect(log.pull({ from: 0, max: 1, known_document: 'd0' }).documents).toEqual({})
  })

  it('NotaryLog keeps a reply within its bytes, but always gives one completion', () => {
    const { log } = makeLog()
    append(log, { bytes: PULL_BYTES_MAX + 1 })
    append(log, { bytes: PULL_BYTES_MAX / 2 })
    append(log, { bytes: PULL_BYTES_MAX / 2 })
    expect(indexesOf(log.pull({ from: 0, ...all }))).toEqual([0])
    const reply = log.pull({ from: 1, ...all })
    expect(indexesOf(reply)).toEqual([1])
    expectHead(reply, 2)
  })
})

describe('waiting for a leaf', () => {
  const never = new AbortController().signal

  it('the wait for a leaf ends when a leaf is appended', async () => {
    const { log } = makeLog()
    const waiting = log.waitFor(0, 60_000, never).then(() => log.size)
    append(log)
    expect(await waiting).toBe(1)
  })

  it('the wait for a leaf ends when its time is over, on abort, and when the log is woken', async () => {
    const { log } = makeLog()
    const abort = new AbortController()
    const waits = [log.waitFor(0, 10, never), log.waitFor(0, 60_000, abort.signal)]
    abort.abort()
    await Promise.all(waits)
    const woken = log.waitFor(0, 60_000, never)
    log.wake()
    await woken
    expect(log.size).toBe(0)
  })
})
