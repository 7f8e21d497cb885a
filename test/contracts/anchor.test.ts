import { concat, getBytes, Signature, TypedDataEncoder, toBeHex, Wallet } from 'ethers'
import fc from 'fast-check'
import { afterAll, expect, it } from 'vitest'
import { treeHeadDigest } from '#attestation/tree-head.ts'
import { anchorError, readContract, sendAnchor } from '../support/affidavit-contract.ts'
import { signHead, startTestChain, TREE_HEAD_TYPES, typedDomain } from '../support/chain.ts'

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n
const SIZE_MAX = 2n ** 64n - 1n

const chain = await startTestChain()
afterAll(() => chain.dispose())

function root(fill: number): Uint8Array {
  return new Uint8Array(32).fill(fill)
}

function newNotary(): Wallet {
  return new Wallet(Wallet.createRandom().privateKey)
}

async function signedHead(notary: Wallet, size: number, fill: number) {
  const head = { size, root: root(fill) }
  return { ...head, signature: await signHead(chain, notary, head) }
}

async function newestHead(notary: Wallet): Promise<readonly unknown[]> {
  return [...(await readContract(chain, 'newestHead', [notary.address]))]
}

it('the contract accepts and emits a smaller head, and keeps the larger one', async () => {
  const notary = newNotary()
  await sendAnchor(chain, await signedHead(notary, 5, 0xaa))
  const { events } = await sendAnchor(chain, await signedHead(notary, 4, 0xbb))
  expect(events).toEqual([
    { name: 'Anchored', values: [notary.address, 4n, `0x${'bb'.repeat(32)}`] },
  ])
  expect(await newestHead(notary)).toEqual([5n, `0x${'aa'.repeat(32)}`])
})

it('the contract reports two roots of one size as equivocation and keeps the first', async () => {
  const notary = newNotary()
  await sendAnchor(chain, await signedHead(notary, 5, 0xaa))
  const { events } = await sendAnchor(chain, await signedHead(notary, 5, 0xbb))
  const [kept, other] = [`0x${'aa'.repeat(32)}`, `0x${'bb'.repeat(32)}`]
  expect(events).toEqual([
    { name: 'Equivocation', values: [notary.address, 5n, kept, other] },
    { name: 'Anchored', values: [notary.address, 5n, other] },
  ])
  expect(await newestHead(notary)).toEqual([5n, kept])
})

it('the contract does not detect two roots of a size that is no longer the newest', async () => {
  const notary = newNotary()
  await sendAnchor(chain, await signedHead(notary, 5, 0xaa))
  await sendAnchor(chain, await signedHead(notary, 6, 0xbb))
  const { events } = await sendAnchor(chain, await signedHead(notary, 5, 0xcc))
  expect(events.map((event) => event.name)).toEqual(['Anchored'])
})

it('the contract does not detect that a larger head has another history than the kept one', async () => {
  const notary = newNotary()
  await sendAnchor(chain, await signedHead(notary, 1, 0xaa))
  const { events } = await sendAnchor(chain, await signedHead(notary, 2, 0xbb))
  expect(events.map((event) => event.name)).toEqual(['Anchored'])
})

it('the contract takes the largest size there is', async () => {
  const notary = newNotary()
  const head = { size: SIZE_MAX, root: root(1) }
  const signature = getBytes(await notary.signTypedData(typedDomain(chain), TREE_HEAD_TYPES, head))
  await sendAnchor(chain, { ...head, signature })
  expect((await newestHead(notary))[0]).toBe(SIZE_MAX)
})

it('the contract never reverts on a head that its notary signed, in any order', async () => {
  const notary = newNotary()
  const heads = fc.array(fc.tuple(fc.integer({ min: 0, max: 4 }), fc.integer({ min: 0, max: 2 })), {
    minLength: 1,
    maxLength: 12,
  })
  let largest = 0
  await fc.assert(
    fc.asyncProperty(heads, async (order) => {
      for (const [size, fill] of order) {
        await sendAnchor(chain, await signedHead(notary, size, fill))
        largest = Math.max(largest, size)
        expect((await newestHead(notary))[0]).toBe(BigInt(largest))
      }
    }),
    { numRuns: 5 },
  )
})

it('the signature of a head is refused when it is not 65 bytes', async () => {
  const head = await signedHead(newNotary(), 5, 0xaa)
  for (const length of [0, 1, 64, 66, 97]) {
    const signature = new Uint8Array(length)
    signature.set(head.signature.subarray(0, length))
    expect(await anchorError(chain, { ...head, signature })).toBe('SignatureLength')
  }
})

it('the signature of a head is refused with s in the upper half', async () => {
  const head = await signedHead(newNotary(), 5, 0xaa)
  const { r, s, v } = Signature.from(`0x${Buffer.from(head.signature).toString('hex')}`)
  const twin = getBytes(concat([r, toBeHex(ORDER - BigInt(s), 32), v === 27 ? '0x1c' : '0x1b']))
  expect(await anchorError(chain, { ...head, signature: twin })).toBe('SignatureS')
})

it('the signature of a head is checked for s exactly at half the order', async () => {
  const head = await signedHead(newNotary(), 5, 0xaa)
  const withS = (s: bigint) => {
    const signature = Uint8Array.from(head.signature)
    signature.set(getBytes(toBeHex(s, 32)), 32)
    return { ...head, signature }
  }
  expect(await anchorError(chain, withS((ORDER - 1n) / 2n))).toBeNull()
  expect(await anchorError(chain, withS((ORDER - 1n) / 2n + 1n))).toBe('SignatureS')
})

it('the signature of a head is refused with v other than 27 and 28', async () => {
  const head = await signedHead(newNotary(), 5, 0xaa)
  for (const v of [0, 1, 2, 26, 29, 255]) {
    const signature = Uint8Array.from(head.signature)
    signature[64] = v
    expect(await anchorError(chain, { ...head, signature })).toBe('SignatureV')
  }
})

it('the signature of a head is refused when no key recovers from it', async () => {
  const zero = new Uint8Array(65)
  zero[64] = 27
  expect(await anchorError(chain, { size: 5, root: root(1), signature: zero })).toBe(
    'SignatureSigner',
  )
  const head = await signedHead(newNotary(), 5, 0xaa)
  const zeroS = Uint8Array.from(head.signature)
  zeroS.fill(0, 32, 64)
  expect(await anchorError(chain, { ...head, signature: zeroS })).toBe('SignatureSigner')
})

it('the signature of a head counts for another account when any bit of the head or of r is changed', async () => {
  const notary = newNotary()
  const head = await signedHead(notary, 5, 0xaa)
  const otherRoot = Uint8Array.from(head.root)
  otherRoot[31] = 0xab
  const otherR = Uint8Array.from(head.signature)
  otherR[5] = (otherR[5] ?? 0) ^ 1
  for (const changed of [
    { ...head, size: 6 },
    { ...head, root: otherRoot },
    { ...head, signature: otherR },
  ]) {
    if ((await anchorError(chain, changed)) !== null) continue
    const { events } = await sendAnchor(chain, changed)
    expect(events[0]?.values[0]).not.toBe(notary.address)
  }
  expect((await newestHead(notary))[0]).toBe(0n)
})

it('the digest of a head is the same from the contract, attestation/ and ethers', async () => {
  for (const size of [0, 1, 17, 2 ** 32, Number.MAX_SAFE_INTEGER]) {
    const head = { size, root: root(size % 251) }
    const [onChain] = await readContract(chain, 'treeHeadDigest', [size, head.root])
    expect(onChain).toBe(TypedDataEncoder.hash(typedDomain(chain), TREE_HEAD_TYPES, head))
    expect(onChain).toBe(`0x${Buffer.from(treeHeadDigest(chain, head)).toString('hex')}`)
  }
})

it('the digest of a head changes with the chain id, so that a head of one side of a fork is void on the other', async () => {
  const head = { size: 5, root: root(0xaa) }
  const [before] = await readContract(chain, 'treeHeadDigest', [head.size, head.root])
  await chain.rpc.call('anvil_setChainId', [31_338])
  try {
    const [after] = await readContract(chain, 'treeHeadDigest', [head.size, head.root])
    const forked = { ...typedDomain(chain), chainId: 31_338 }
    expect(after).toBe(TypedDataEncoder.hash(forked, TREE_HEAD_TYPES, head))
    expect(after).not.toBe(before)
  } finally {
    await chain.rpc.call('anvil_setChainId', [chain.chainId])
  }
})
