import { createHash } from 'node:crypto'
import { Wallet } from 'ethers'
import { afterAll, expect, it } from 'vitest'
import {
  CONTRACT,
  plainPath,
  plainRoot,
  readContract,
  sendAnchor,
} from '../support/affidavit-contract.ts'
import { signHead, startTestChain } from '../support/chain.ts'

const chain = await startTestChain()
afterAll(() => chain.dispose())

const LEAVES = Array.from({ length: 40 }, (_, index) => Buffer.from(`receipt ${index}`))

function leafHash(index: number): Uint8Array {
  return createHash('sha256')
    .update(Uint8Array.of(0))
    .update(LEAVES[index] ?? Buffer.alloc(0))
    .digest()
}

type Proof = {
  readonly leaf: Uint8Array
  readonly index: number
  readonly size: number
  readonly root: Uint8Array
  readonly path: readonly Uint8Array[]
}

function proofOf(index: number, size: number): Proof {
  const leaves = LEAVES.slice(0, size)
  return {
    leaf: leafHash(index),
    index,
    size,
    root: plainRoot(leaves),
    path: plainPath(index, leaves),
  }
}

/** Asks the contract about many proofs in as few exchanges as the client allows. */
async function verifyAll(proofs: readonly Proof[]): Promise<readonly boolean[]> {
  const calls = proofs.map(({ leaf, index, size, root, path }) => {
    const data = CONTRACT.encodeFunctionData('verifyInclusion', [leaf, index, size, root, path])
    return { method: 'eth_call', params: [{ to: chain.contract, data }, 'latest'] }
  })
  const replies = await chain.rpc.batch(calls)
  return replies.map((reply) => {
    if (reply.kind === 'error') throw new Error(reply.message)
    return CONTRACT.decodeFunctionResult('verifyInclusion', String(reply.value))[0]
  })
}

function flip(bytes: Uint8Array, bit: number): Uint8Array {
  const flipped = Uint8Array.from(bytes)
  const at = (bit >> 3) % bytes.length
  flipped[at] = (flipped[at] ?? 0) ^ (1 << (bit & 7))
  return flipped
}

it('verifyInclusion accepts every leaf of every tree of 1 to 40 leaves', async () => {
  const proofs = LEAVES.flatMap((_, last) =>
    Array.from({ length: last + 1 }, (_leaf, index) => proofOf(index, last + 1)),
  )
  expect(proofs).toHaveLength(820)
  expect((await verifyAll(proofs)).every((isIncluded) => isIncluded)).toBe(true)
})

it('verifyInclusion refuses every proof with one part changed', async () => {
  const broken = LEAVES.flatMap((_, last) => {
    const size = last + 1
    const index = (last * 7) % size
    const good = proofOf(index, size)
    const [first] = good.path
    return [
      { ...good, leaf: flip(good.leaf, last * 5) },
      { ...good, root: flip(good.root, last * 3) },
      { ...good, path: [...good.path, new Uint8Array(32)] },
      { ...good, index: size },
      { ...good, index: 2 ** 40 + index },
      { ...good, size: 0 },
      ...(first === undefined
        ? []
        : [
            { ...good, path: good.path.slice(1) },
            { ...good, path: good.path.slice(0, -1) },
            { ...good, path: [flip(first, last), ...good.path.slice(1)] },
            { ...good, index: index ^ 1 },
          ]),
      ...(good.path.length > 1 ? [{ ...good, path: good.path.toReversed() }] : []),
    ]
  })
  expect(broken.length).toBeGreaterThan(400)
  expect((await verifyAll(broken)).filter((isIncluded) => isIncluded)).toEqual([])
})

it('verifyInclusion refuses an inner node in the place of a leaf', async () => {
  const { root, path } = proofOf(0, 4)
  const inner = plainRoot(LEAVES.slice(0, 2))
  const shorter = path.slice(1)
  for (const size of [1, 2, 3, 4, 5]) {
    for (const index of [0, 1]) {
      const [isIncluded] = await verifyAll([{ leaf: inner, index, size, root, path: shorter }])
      // Of size 2 there could be a tree with these two hashes as leaves. Only the signed size
      // speaks against it.
      expect(isIncluded).toBe(size === 2 && index === 0)
    }
  }
})

const notary = new Wallet(`0x${'77'.repeat(32)}`)

async function verifyAnchored({ leaf, index, path }: Proof): Promise<boolean> {
  const [isAnchored] = await readContract(chain, 'verifyAnchored', [
    notary.address,
    leaf,
    index,
    path,
  ])
  return isAnchored
}

it('verifyAnchored is false for a notary without a head', async () => {
  expect(await verifyAnchored(proofOf(0, 1))).toBe(false)
})

it('verifyAnchored accepts leaves of the newest head alone', async () => {
  for (const size of [5, 7]) {
    const head = { size, root: plainRoot(LEAVES.slice(0, size)) }
    await sendAnchor(chain, { ...head, signature: await signHead(chain, notary, head) })
    expect(await verifyAnchored(proofOf(4, size))).toBe(true)
  }
  expect(await verifyAnchored(proofOf(6, 7))).toBe(true)
  expect(await verifyAnchored(proofOf(4, 5))).toBe(false)
  expect(await verifyAnchored({ ...proofOf(4, 7), leaf: leafHash(5) })).toBe(false)
})
