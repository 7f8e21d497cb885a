import { SigningKey, Transaction, Wallet } from 'ethers'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { FormatError, ProofError } from '#attestation/errors.ts'
import {
  decodeAnchorTransaction,
  encodeAnchorCall,
  TRANSACTION_BYTES_MAX,
} from '#attestation/evidence/anchor-transaction.ts'
import { decodeRlp, encodeRlp as encodeItems, type RlpItem } from '#attestation/evidence/rlp.ts'
import { signAnchorTransaction } from '#src/chain/sign-anchor.ts'
import { CONTRACT as AFFIDAVIT } from '../../support/affidavit-contract.ts'

const RELAYER = new Wallet(`0x${'5e'.repeat(32)}`)
const CONTRACT = `0x${'c0'.repeat(20)}`
const ANCHOR = {
  relayerKey: RELAYER.privateKey,
  chainId: 31337,
  contract: CONTRACT,
  nonce: 7,
  head: { size: 9, root: new Uint8Array(32).fill(0xaa), signature: new Uint8Array(65).fill(0xbb) },
  fees: { maxFeePerGasWei: 500_000_000_000n, maxPriorityFeePerGasWei: 1_000_000_000n },
}
const { raw, hash } = signAnchorTransaction(ANCHOR)
const RAW = decodeHex(raw)
const CALL = AFFIDAVIT.encodeFunctionData('anchor', [9, ANCHOR.head.root, ANCHOR.head.signature])

it('decodeAnchorTransaction reads what ethers signed and recovers the same sender', () => {
  expect(decodeAnchorTransaction(RAW)).toEqual({
    hash,
    relayer: RELAYER.address.toLowerCase(),
    chainId: 31337,
    nonce: 7,
    contract: CONTRACT,
    call: ANCHOR.head,
  })
})

it('decodeAnchorTransaction reads any chain, nonce, fees and head as ethers does', () => {
  const arbitrary = fc.record({
    chainId: fc.maxSafeNat(),
    nonce: fc.maxSafeNat(),
    size: fc.maxSafeNat(),
    root: fc.uint8Array({ minLength: 32, maxLength: 32 }),
    signature: fc.uint8Array({ minLength: 65, maxLength: 65 }),
    fee: fc.bigInt({ min: 0n, max: 2n ** 200n }),
  })
  fc.assert(
    fc.property(arbitrary, ({ chainId, nonce, fee, ...head }) => {
      const fees = { maxFeePerGasWei: fee, maxPriorityFeePerGasWei: fee / 2n }
      const signed = signAnchorTransaction({ ...ANCHOR, chainId, nonce, head, fees })
      const decoded = decodeAnchorTransaction(decodeHex(signed.raw))
      expect(decoded).toMatchObject({ hash: signed.hash, chainId, nonce, call: head })
      expect(decoded.relayer).toBe(Transaction.from(signed.raw).from?.toLowerCase())
    }),
    { numRuns: 12 },
  )
})

it('changed bytes never give the same hash or sender and fail only by our own errors', () => {
  fc.assert(
    fc.property(fc.nat(RAW.length - 1), fc.integer({ min: 1, max: 255 }), (at, flip) => {
      try {
        const changed = decodeAnchorTransaction(RAW.with(at, (RAW[at] ?? 0) ^ flip))
        expect(changed.hash).not.toBe(hash)
        expect(changed.relayer).not.toBe(RELAYER.address.toLowerCase())
      } catch (fault) {
        if (!(fault instanceof FormatError || fault instanceof ProofError)) throw fault
      }
    }),
    { numRuns: 50 },
  )
})

it('a transaction that is cut, has bytes after it or is longer than an anchor is refused', () => {
  for (const length of [0, 1, 2, 50, RAW.length - 1])
    expect(() => decodeAnchorTransaction(RAW.subarray(0, length))).toThrow(FormatError)
  expect(() => decodeAnchorTransaction(Uint8Array.from([...RAW, 0]))).toThrow(/after the value/)
  expect(() => decodeAnchorTransaction(new Uint8Array(TRANSACTION_BYTES_MAX + 1))).toThrow(
    /at most 1024/,
  )
})

it.each<[string, Partial<Parameters<typeof Transaction.from>[0] & object>, RegExp]>([
  ['a value', { value: 1n }, /value of 0/],
  ['an access list', { accessList: [{ address: CONTRACT, storageKeys: [] }] }, /no access list/],
  ['a creation', { to: null }, /to to be 20 bytes/],
  ['no call data', { data: '0x' }, /228 bytes/],
  ['bytes after the call', { data: `${CALL}00` }, /228 bytes/],
  ['call data one byte short', { data: CALL.slice(0, -2) }, /228 bytes/],
  ['another function', { data: `0x00000000${CALL.slice(10)}` }, /canonical call/],
  ['a legacy transaction', { type: 0, gasPrice: 1n }, /type 2/],
  ['an access-list transaction', { type: 1, gasPrice: 1n }, /type 2/],
  ['a chain id of 2^53', { chainId: 2n ** 53n }, /chainId to be at most/],
])('decodeAnchorTransaction refuses %s, though it is well signed', (_, changed, message) => {
  expect(() => decodeAnchorTransaction(decodeHex(signTransaction(changed)))).toThrow(message)
})

it.each<[string, number, RlpItem, RegExp]>([
  ['a chain id with a leading zero', 0, Uint8Array.of(0, 1), /leading zeros/],
  ['a nonce with a leading zero', 1, Uint8Array.of(0), /leading zeros/],
  ['a fee with a leading zero', 2, Uint8Array.of(0, 9), /leading zeros/],
  ['a fee cap of 33 bytes', 3, new Uint8Array(33).fill(1), /32 bytes/],
  ['a gas limit that is a list', 4, [], /byte string/],
  ['an address of 19 bytes', 5, new Uint8Array(19).fill(1), /20 bytes/],
  ['a value written as a zero byte', 6, Uint8Array.of(0), /leading zeros/],
  ['call data that is a list', 7, [], /byte string/],
  ['an access list that is a byte string', 8, new Uint8Array(), /to be a list/],
  ['a y parity of 2', 9, Uint8Array.of(2), /y parity of 0 or 1/],
  ['a y parity of 27', 9, Uint8Array.of(27), /y parity of 0 or 1/],
  ['an r with a leading zero', 10, Uint8Array.of(0, 1), /leading zeros/],
  ['an r of zero', 10, new Uint8Array(), /r and s between 1/],
  ['an s of 33 bytes', 11, new Uint8Array(33).fill(1), /32 bytes/],
])('decodeAnchorTransaction refuses a malformed field: %s', (_, at, item, message) => {
  expect(() => decodeAnchorTransaction(withField(at, item))).toThrow(message)
})

it('the second form of a transaction’s signature is refused, as nodes refuse it (EIP-2)', () => {
  const fields = fieldsOf(RAW)
  const s = BigInt(`0x${encodeHex(fields[11] as Uint8Array)}`)
  const parity = (fields[9] as Uint8Array).length
  const high = decodeHex((ORDER - s).toString(16).padStart(64, '0'))
  const malleated = fields
    .with(9, parity === 1 ? new Uint8Array() : Uint8Array.of(1))
    .with(11, high)
  expect(() => decodeAnchorTransaction(joined(malleated))).toThrow(/at most half the order/)
})

it('a transaction of 11 or 13 fields and a value that is no list are refused', () => {
  const fields = fieldsOf(RAW)
  expect(() => decodeAnchorTransaction(joined(fields.slice(0, 11)))).toThrow(/12 fields, got 11/)
  expect(() => decodeAnchorTransaction(joined([...fields, new Uint8Array()]))).toThrow(
    /12 fields, got 13/,
  )
  expect(() => decodeAnchorTransaction(Uint8Array.of(2, 0x80))).toThrow(/to be a list/)
})

it('the call of anchor is encoded as the contract’s interface says', () => {
  expect(`0x${encodeHex(encodeAnchorCall(ANCHOR.head))}`).toBe(CALL)
})

it('a call of anchor is read in one encoding only, so a changed bit of every byte is seen', () => {
  const data = decodeHex(CALL)
  const meaning = new Set<number>()
  for (let at = 28; at < 36; at++) meaning.add(at) // the low 8 bytes of size
  for (let at = 36; at < 68; at++) meaning.add(at) // the root
  for (let at = 132; at < 197; at++) meaning.add(at) // the signature
  for (let at = 0; at < data.length; at++)
    if (!meaning.has(at)) {
      const changed = data.with(at, (data[at] ?? 0) ^ (1 << (at % 8)))
      expect(() => decodeAnchorTransaction(withField(7, changed))).toThrow(/canonical call|2\^53/)
    }
})

it('a call of anchor with a size that no double holds is refused', () => {
  const size = AFFIDAVIT.encodeFunctionData('anchor', [
    2n ** 53n,
    ANCHOR.head.root,
    ANCHOR.head.signature,
  ])
  expect(() => decodeAnchorTransaction(decodeHex(signTransaction({ data: size })))).toThrow(
    /2\^53-1/,
  )
})

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n

function signTransaction(changed: object): string {
  const transaction = Transaction.from({
    type: 2,
    chainId: 31337,
    nonce: 7,
    to: CONTRACT,
    gasLimit: 150_000n,
    ...('gasPrice' in changed ? {} : { maxFeePerGas: 2n, maxPriorityFeePerGas: 1n }),
    data: CALL,
    ...changed,
  })
  transaction.signature = new SigningKey(RELAYER.privateKey).sign(transaction.unsignedHash)
  return transaction.serialized
}

function fieldsOf(transaction: Uint8Array): readonly RlpItem[] {
  const items = decodeRlp(transaction.subarray(1))
  if (items instanceof Uint8Array) throw new Error('expected a list')
  return items
}

function withField(at: number, item: RlpItem): Uint8Array {
  return joined(fieldsOf(RAW).with(at, item))
}

function joined(fields: readonly RlpItem[]): Uint8Array {
  return Uint8Array.from([2, ...encodeItems(fields)])
}
