import { Transaction, Wallet } from 'ethers'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  ANCHOR_GAS_LIMIT,
  decodeAnchorTransaction,
  relayerAddress,
  signAnchorTransaction,
} from '../../../src/chain/anchor-transaction.ts'
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

describe('signAnchorTransaction', () => {
  it('gives what an ethers wallet signs', async () => {
    const data = CONTRACT.encodeFunctionData('anchor', [12, ANCHOR.head.root, ANCHOR.head.signature])
    const expected = await RELAYER.signTransaction({
      type: 2,
      chainId: 31_337,
      nonce: 7,
      to: ANCHOR.contract,
      gasLimit: ANCHOR_GAS_LIMIT,
      maxFeePerGas: 500_000_000_000n,
      maxPriorityFeePerGas: 1_000_000_000n,
      data,
    })
    expect(signAnchorTransaction(ANCHOR)).toEqual({ raw: expected, hash: Transaction.from(expected).hash })
  })

  it('gives the same bytes for the same anchor, and another hash when anything differs', () => {
    const { hash } = signAnchorTransaction(ANCHOR)
    expect(signAnchorTransaction(ANCHOR).hash).toBe(hash)
    const others = [
      { ...ANCHOR, nonce: 8 },
      { ...ANCHOR, chainId: 1 },
      { ...ANCHOR, contract: `0x${'c1'.repeat(20)}` },
      { ...ANCHOR, head: { ...ANCHOR.head, size: 13 } },
      { ...ANCHOR, head: { ...ANCHOR.head, root: new Uint8Array(32) } },
      { ...ANCHOR, gasLimit: 1_000_000n },
      { ...ANCHOR, fees: { ...TEST_FEES, maxFeePerGasWei: 1_000_000_001n } },
    ].map((anchor) => signAnchorTransaction(anchor).hash)
    expect(new Set([hash, ...others]).size).toBe(8)
  })

  it('refuses roots and signatures of other lengths', () => {
    const withHead = (head: Partial<typeof ANCHOR.head>) => () =>
      signAnchorTransaction({ ...ANCHOR, head: { ...ANCHOR.head, ...head } })
    expect(withHead({ root: new Uint8Array(31) })).toThrow('root of 32 bytes, got 31')
    expect(withHead({ signature: new Uint8Array(64) })).toThrow('signature of 65 bytes, got 64')
  })

  it('does not check whose signature the head has', () => {
    const nobody = { ...ANCHOR.head, signature: new Uint8Array(65) }
    expect(signAnchorTransaction({ ...ANCHOR, head: nobody }).raw).toMatch(/^0x02/)
  })
})

describe('decodeAnchorTransaction', () => {
  it('reads back what was signed, and who signed', () => {
    const { raw, hash } = signAnchorTransaction(ANCHOR)
    expect(decodeAnchorTransaction(raw)).toEqual({
      hash,
      relayer: relayerAddress(RELAYER.privateKey),
      chainId: 31_337,
      contract: ANCHOR.contract,
      nonce: 7,
      head: {
        size: 12,
        root: new Uint8Array(ANCHOR.head.root),
        signature: new Uint8Array(ANCHOR.head.signature),
      },
    })
  })

  it('gives null for other transactions', async () => {
    const call = { type: 2, chainId: 1, to: ANCHOR.contract, gasLimit: 100_000n, maxFeePerGas: 1n }
    const other = CONTRACT.encodeFunctionData('newestHead', [ANCHOR.contract])
    expect(decodeAnchorTransaction(await RELAYER.signTransaction({ ...call, data: '0x' }))).toBeNull()
    expect(decodeAnchorTransaction(await RELAYER.signTransaction({ ...call, data: other }))).toBeNull()
    const data = CONTRACT.encodeFunctionData('anchor', [1, new Uint8Array(32), new Uint8Array(65)])
    const legacy = { type: 0, chainId: 1, to: ANCHOR.contract, gasLimit: 100_000n, gasPrice: 1n, data }
    expect(decodeAnchorTransaction(await RELAYER.signTransaction(legacy))).toBeNull()
    expect(decodeAnchorTransaction(await RELAYER.signTransaction({ ...call, to: null, data }))).toBeNull()
  })

  it('gives null or another signer, and never throws, when a byte is changed or lost', () => {
    const { raw } = signAnchorTransaction(ANCHOR)
    const relayer = relayerAddress(RELAYER.privateKey)
    const damaged = fc.record({
      at: fc.integer({ min: 2, max: raw.length - 1 }),
      digit: fc.constantFrom(...'0123456789abcdef'),
      isCut: fc.boolean(),
    })
    fc.assert(
      fc.property(damaged, ({ at, digit, isCut }) => {
        const text = isCut ? raw.slice(0, at) : `${raw.slice(0, at)}${digit}${raw.slice(at + 1)}`
        if (text === raw) return
        const decoded = decodeAnchorTransaction(text)
        expect(decoded?.relayer).not.toBe(relayer)
      }),
      { numRuns: 200 },
    )
  })
})
