import { Transaction, Wallet } from 'ethers'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { relayerAddress, signAnchorTransaction } from '#src/chain/sign-anchor.ts'
import { CONTRACT } from '../../support/affidavit-contract.ts'
import { TEST_FEES } from '../../support/chain.ts'

const RELAYER = new Wallet(`0x${'5a'.repeat(32)}`)

const ANCHOR = {
  relayerKey: RELAYER.privateKey,
  chainId: 31_337,
  contract: `0x${'c0'.repeat(20)}`,
  nonce: 7,
  head: { size: 12, root: new Uint8Array(32).fill(3), signature: new Uint8Array(65).fill(9) },
  fees: TEST_FEES,
}

const KEYS = Array.from({ length: 8 }, () => Wallet.createRandom().privateKey)
const bytes = (length: number) => fc.uint8Array({ minLength: length, maxLength: length })

it('signAnchorTransaction gives what ethers encodes, whatever the values', () => {
  const amount = fc.bigInt({ min: 0n, max: 2n ** 80n })
  fc.assert(
    fc.property(
      fc.record({
        relayerKey: fc.constantFrom(...KEYS),
        chainId: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
        contract: bytes(20).map((address) => `0x${Buffer.from(address).toString('hex')}`),
        nonce: fc.maxSafeNat(),
        head: fc.record({ size: fc.maxSafeNat(), root: bytes(32), signature: bytes(65) }),
        fees: fc
          .tuple(amount, amount)
          .map(([tip, rest]) => ({ maxFeePerGasWei: tip + rest, maxPriorityFeePerGasWei: tip })),
        gasLimit: amount,
      }),
      (anchor) => {
        const { raw, hash } = signAnchorTransaction(anchor)
        const read = Transaction.from(raw)
        expect(read.serialized).toBe(raw)
        expect(read.hash).toBe(hash)
        expect(read.from).toBe(new Wallet(anchor.relayerKey).address)
        const { size, root, signature } = anchor.head
        expect(read.data).toBe(CONTRACT.encodeFunctionData('anchor', [size, root, signature]))
        expect([Number(read.chainId), read.nonce, read.to?.toLowerCase()]).toEqual([
          anchor.chainId,
          anchor.nonce,
          anchor.contract,
        ])
        expect([read.maxFeePerGas, read.maxPriorityFeePerGas, read.gasLimit]).toEqual([
          anchor.fees.maxFeePerGasWei,
          anchor.fees.maxPriorityFeePerGasWei,
          anchor.gasLimit,
        ])
      },
    ),
    { numRuns: 60 },
  )
})

it('signAnchorTransaction refuses roots and signatures of other lengths', () => {
  const withHead = (head: Partial<typeof ANCHOR.head>) => () =>
    signAnchorTransaction({ ...ANCHOR, head: { ...ANCHOR.head, ...head } })
  expect(withHead({ root: new Uint8Array(31) })).toThrow('root of 32 bytes, got 31')
  expect(withHead({ signature: new Uint8Array(64) })).toThrow('signature of 65 bytes, got 64')
})

it('relayerAddress is the address of the key, in lower case', () => {
  expect(relayerAddress(RELAYER.privateKey)).toBe(RELAYER.address.toLowerCase())
})
