import {
  computeAddress,
  getBytes,
  hexlify,
  Interface,
  keccak256,
  Signature,
  SigningKey,
  Transaction,
} from 'ethers'
import { signRecoverable } from 'tiny-secp256k1'
import { AFFIDAVIT } from './contract/artifact.ts'

/**
 * Gas limit of an anchor. Unused gas is not paid, but the relayer's balance must cover limit × fee
 * cap. The dearest call, a notary's first head, takes 75,000 (test/contracts/gas.test.ts measures
 * and bounds it); the rest is room for chains that charge more for call data, such as rollups with
 * part of their data fee inside the limit.
 */
export const ANCHOR_GAS_LIMIT = 150_000n

export type Fees = {
  /**
   * Most that is ever paid per gas, tip included. Never raised later, so it must outlast price
   * spikes.
   */
  readonly maxFeePerGasWei: bigint
  readonly maxPriorityFeePerGasWei: bigint
}

export type AnchorTransaction = {
  /** 0x hex, as `eth_sendRawTransaction` takes it. */
  readonly raw: string
  /** The transaction's hash, 0x, lower case. */
  readonly hash: string
}

/**
 * Signs the EIP-1559 transaction that brings a head to the contract. Pure and deterministic (RFC
 * 6979): the same values give the same bytes, hence the same hash. Takes about a millisecond.
 * Throws on a malformed key, address, root (32 bytes) or signature (65 bytes).
 *
 * Does NOT check that the head's signature is the notary's: the contract takes any (verifyTreeHead
 * does).
 */
export function signAnchorTransaction(anchor: {
  /** 0x and 64 hex digits. */
  readonly relayerKey: string
  readonly chainId: number
  readonly contract: string
  readonly nonce: number
  readonly head: {
    readonly size: number
    readonly root: Uint8Array
    readonly signature: Uint8Array
  }
  readonly fees: Fees
  readonly gasLimit?: bigint
}): AnchorTransaction {
  const { head, fees } = anchor
  if (head.root.length !== 32)
    throw new TypeError(`expected a root of 32 bytes, got ${head.root.length}`)
  if (head.signature.length !== 65) {
    throw new TypeError(`expected a signature of 65 bytes, got ${head.signature.length}`)
  }
  const transaction = Transaction.from({
    type: 2,
    chainId: anchor.chainId,
    nonce: anchor.nonce,
    to: anchor.contract,
    value: 0n,
    gasLimit: anchor.gasLimit ?? ANCHOR_GAS_LIMIT,
    maxFeePerGas: fees.maxFeePerGasWei,
    maxPriorityFeePerGas: fees.maxPriorityFeePerGasWei,
    data: CONTRACT.encodeFunctionData('anchor', [head.size, head.root, head.signature]),
  })
  transaction.signature = signDigest(
    getBytes(transaction.unsignedHash),
    getBytes(anchor.relayerKey),
  )
  const raw = transaction.serialized
  return { raw, hash: keccak256(raw) }
}

/**
 * libsecp256k1 as WebAssembly: one anchor is signed for each commit, and ethers takes six times as
 * long for it.
 */
function signDigest(digest: Uint8Array, key: Uint8Array): Signature {
  const { signature, recoveryId } = signRecoverable(digest, key)
  return Signature.from({
    r: hexlify(signature.subarray(0, 32)),
    s: hexlify(signature.subarray(32)),
    yParity: recoveryId === 1 ? 1 : 0,
  })
}

/** Address of the account of a private key: 0x, lower case. Throws on a malformed key. */
export function relayerAddress(relayerKey: string): string {
  return computeAddress(new SigningKey(relayerKey)).toLowerCase()
}

const CONTRACT = new Interface(AFFIDAVIT.abi)
