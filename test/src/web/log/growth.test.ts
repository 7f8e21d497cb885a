import { Wallet } from 'ethers'
import { describe, expect, it } from 'vitest'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { ProofError } from '#attestation/errors.ts'
import { treeHeadDigest } from '#attestation/tree-head.ts'
import type { DescribedLog, Head } from '#src/web/log/answers.ts'
import { createGrowthWatch } from '#src/web/log/growth.ts'
import { createSeenHeads } from '#src/web/log/seen-heads.ts'
import { createReference, exampleLeaves } from '../../../attestation/merkle/reference.ts'

const wallet = new Wallet(`0x${'17'.repeat(32)}`)
const notary = wallet.address.toLowerCase()
const LOG: DescribedLog = {
  notary,
  public_key: `0x${'00'.repeat(65)}`,
  chain_id: 1,
  contract: `0x${'12'.repeat(20)}`,
  boot_configuration: { chain_id: 1, providers: [] },
  created_at: 1,
  size: 0,
  root: 'cd'.repeat(32),
  head: null,
  attestation_sha256: null,
}
const TREE = createReference(exampleLeaves(20))
/** Another log: its sixth leaf differs. */
const OTHER = createReference(exampleLeaves(20).with(5, Uint8Array.of(1)))

function headOf(size: number, { tree = TREE, signer = wallet, chainId = 1 } = {}): Head {
  const root = tree.root(size)
  const digest = treeHeadDigest({ chainId, contract: LOG.contract }, { size, root })
  const signature = signer.signingKey.sign(digest).serialized
  return { size, root: encodeHex(root), signature, created_at: 1, anchor: null } as unknown as Head
}

/** A watch of one visit, in a browser that keeps what `items` has. */
function openWatch({ items = new Map<string, string>(), tree = TREE } = {}) {
  const asked: (readonly [number, number])[] = []
  const reading = { fault: null as Error | null }
  const storage = {
    getItem: (name: string) => items.get(name) ?? null,
    setItem: (name: string, text: string) => void items.set(name, text),
  } as unknown as Storage
  const watch = createGrowthWatch({
    notary,
    seen: createSeenHeads(storage),
    readPath: async ({ from, to }) => {
      asked.push([from, to])
      if (reading.fault !== null) throw reading.fault
      return tree.consistency(from, to)
    },
    now: () => 7,
  })
  const observe = (head: Head | null, log: Partial<DescribedLog> = {}) =>
    watch.observe({ ...LOG, ...log }, head, new AbortController().signal)
  return { observe, asked, reading, items }
}

describe('the growth of a log', () => {
  it('the growth of a log is broken for good when its boot configuration changes', async () => {
    const { observe } = openWatch()
    expect(await observe(null)).toMatchObject({ kind: 'first' })
    const sameInOtherOrder = { providers: [], chain_id: 1 }
    expect(await observe(null, { boot_configuration: sameInOtherOrder })).toMatchObject({
      kind: 'first',
    })
    const providers = [{ name: 'evil', origin: 'https://evil.example' }]
    const broken = {
      kind: 'broken',
      reason: 'its enclave now has another boot configuration',
    }
    const changed = { boot_configuration: { chain_id: 1, providers } }
    expect(await observe(null, changed)).toMatchObject(broken)
    expect(await observe(null)).toMatchObject(broken)
  })

  it('the growth of a log goes on from each head to the next, and over visits', async () => {
    const first = openWatch()
    expect(await first.observe(headOf(3))).toEqual({ kind: 'first', isKept: true })
    expect(await first.observe(headOf(7))).toEqual({ kind: 'first', isKept: true })
    expect(await first.observe(headOf(7))).toMatchObject({ kind: 'first' })
    expect(first.asked).toEqual([[3, 7]])
    const later = openWatch({ items: first.items })
    const since = expect.objectContaining({ size: 7, atMs: 7 })
    expect(await later.observe(headOf(12))).toEqual({ kind: 'grew', since, size: 12 })
    expect(await later.observe(headOf(20))).toEqual({ kind: 'grew', since, size: 20 })
    expect(later.asked).toEqual([
      [7, 12],
      [12, 20],
    ])
  })

  it.each([
    ['the log is shorter', headOf(6), {}],
    ['the log has no head', null, {}],
    ['an earlier leaf is another', headOf(9, { tree: OTHER }), { tree: OTHER }],
    ['the head of the same size is another', headOf(7, { tree: OTHER }), {}],
    ['somebody else signed', headOf(9, { signer: new Wallet(`0x${'18'.repeat(32)}`) }), {}],
    ['the head is for another chain', headOf(9, { chainId: 2 }), {}],
  ] as const)('a log is broken for good when %s', async (_, head, options) => {
    const { items, observe } = openWatch()
    await observe(headOf(7))
    const kept = new Map(items)
    const watch = openWatch({ items, ...options })
    expect(await watch.observe(head)).toMatchObject({ kind: 'broken', since: { size: 7 } })
    expect(await watch.observe(headOf(9))).toMatchObject({ kind: 'broken' })
    expect(items).toEqual(kept)
  })

  it('a log is broken when its last head differs in the last digit of its root alone', async () => {
    const { observe } = openWatch()
    const whole = headOf(7)
    const root = decodeHex(whole.root)
    root[31] = (root[31] ?? 0) ^ 1
    expect(await observe({ ...whole, root: encodeHex(root) })).toMatchObject({ kind: 'broken' })
  })

  it.each([
    ['contract', { contract: `0x${'12'.repeat(19)}13` }],
    ['chain', { chain_id: 2 }],
  ])('a log is broken when only its %s changes', async (_, domain) => {
    const { observe, items } = openWatch()
    await observe(headOf(7))
    const reason = 'its heads now name another chain or contract'
    const head = headOf(7)
    const size = 9
    const changed = { ...LOG, ...domain }
    const digest = treeHeadDigest(
      { chainId: changed.chain_id, contract: changed.contract },
      { size, root: TREE.root(size) },
    )
    const signature = wallet.signingKey.sign(digest).serialized
    const next = { ...head, size, root: encodeHex(TREE.root(size)), signature }
    expect(await openWatch({ items }).observe(next, domain)).toMatchObject({
      kind: 'broken',
      reason,
    })
  })

  it('a proof that cannot be read leaves the growth open, and the next one that can be read ends that', async () => {
    const { observe, reading } = openWatch()
    await observe(headOf(3))
    reading.fault = new TypeError('not now')
    expect(await observe(headOf(7))).toMatchObject({ kind: 'open', since: { size: 3 } })
    reading.fault = null
    expect(await observe(headOf(7))).toMatchObject({ kind: 'first' })
    reading.fault = new ProofError('inconsistent', 'no')
    expect(await observe(headOf(9))).toMatchObject({ kind: 'broken', reason: 'no' })
  })
})
