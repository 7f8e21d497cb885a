import { keccak_256 } from '@noble/hashes/sha3.js'
import { computeAddress, SigningKey } from 'ethers'
import { signRecoverable } from 'tiny-secp256k1'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { encodeAnchorCall } from '#attestation/evidence/anchor-transaction.ts'
import { encodeRlpNumber, type RlpItem } from '#attestation/evidence/rlp.ts'
import type { SignedHead } from '#audit/known-heads.ts'
import { encodeQuantity, encodeTyped } from './encode-block.ts'

/**
 * Unused gas is not paid, but the relayer's balance must cover limit × fee cap. The most expensive
 * call, a notary's first head, takes 75,000 gas (test/contracts/gas.test.ts measures
 * this). The rest is for chains that charge more for call data, such as rollups.
 */
export const ANCHOR_GAS_LIMIT = 150_000n

export type Fees = {
  /** Includes the tip. Must be high enough for price spikes, because it is never raised later. */
  readonly maxFeePerGasWei: bigint
  readonly maxPriorityFeePerGasWei: bigint
}

export type RawAnchorTransaction = {
  /** 0x hex, as `eth_sendRawTransaction` takes it. */
  readonly raw: string
  /** 0x, lower case. */
  readonly hash: string
}

/**
 * Signs the EIP-1559 transaction that stores a head in the contract. Deterministic (RFC 6979): the
 * same values give the same bytes and hash. ethers would take 2.5 times as long. Throws on a
 * malformed key, address, root (32 bytes) or signature (65 bytes). Does NOT check that the notary
 * signed the head: the contract accepts any signature (verifyTreeHead checks it).
 */
export function signAnchorTransaction(anchor: {
  /** 0x and 64 hex digits. */
  readonly relayerKey: string
  readonly chainId: number
  readonly contract: string
  readonly nonce: number
  readonly head: SignedHead
  readonly fees: Fees
  readonly gasLimit?: bigint
}): RawAnchorTransaction {
  const { head, fees } = anchor
  if (head.root.length !== 32)
    throw new TypeError(`expected a root of 32 bytes, got ${head.root.length}`)
  if (head.signature.length !== 65) {
    throw new TypeError(`expected a signature of 65 bytes, got ${head.signature.length}`)
  }
  const to = decodeHex(anchor.contract)
  if (to.length !== 20) throw new TypeError(`expected an address of 20 bytes, got ${to.length}`)
  const fields: readonly RlpItem[] = [
    encodeRlpNumber(anchor.chainId),
    encodeRlpNumber(anchor.nonce),
    encodeAmount(fees.maxPriorityFeePerGasWei),
    encodeAmount(fees.maxFeePerGasWei),
    encodeAmount(anchor.gasLimit ?? ANCHOR_GAS_LIMIT),
    to,
    NO_VALUE,
    encodeAnchorCall(head),
    NO_ACCESS_LIST,
  ]
  const digest = keccak_256(encodeTyped(EIP1559_TYPE, fields))
  const { signature, recoveryId } = signRecoverable(digest, decodeHex(anchor.relayerKey))
  const raw = encodeTyped(EIP1559_TYPE, [
    ...fields,
    encodeRlpNumber(recoveryId),
    encodeQuantity(`0x${encodeHex(signature.subarray(0, 32))}`),
    encodeQuantity(`0x${encodeHex(signature.subarray(32))}`),
  ])
  return { raw: `0x${encodeHex(raw)}`, hash: `0x${encodeHex(keccak_256(raw))}` }
}

/** EIP-2718. */
const EIP1559_TYPE = 2
const NO_VALUE = new Uint8Array()
const NO_ACCESS_LIST: RlpItem = []

function encodeAmount(amount: bigint): Uint8Array {
  return encodeQuantity(`0x${amount.toString(16)}`)
}

/** Returns 0x hex, lower case. Throws on a malformed key. */
export function relayerAddress(relayerKey: string): string {
  return computeAddress(new SigningKey(relayerKey)).toLowerCase()
}
