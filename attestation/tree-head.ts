import { keccak_256 } from '@noble/hashes/sha3.js'
import { addressOf, type PointRecovery, recoverPublicKey } from './account.ts'
import { concatBytes, decodeHex, encodeUtf8, HASH_BYTES } from './bytes.ts'
import { FormatError, ProofError } from './errors.ts'
import { isCount } from './json/value.ts'

/** The state of a notary's log: its number of leaves, and its Merkle root (32 bytes). */
export type TreeHead = { readonly size: number; readonly root: Uint8Array }

/** The chain and the contract that anchor a notary's heads. A head's signature covers both. */
export type LogDomain = {
  readonly chainId: number
  /** The anchor contract: 0x and 40 lower-case hex digits. */
  readonly contract: string
}

/**
 * EIP-712 digest (32 bytes) of a tree head: domain { name "Affidavit", version "1", chainId,
 * verifyingContract }, type TreeHead(uint64 size,bytes32 root). Throws FormatError
 * `invalid_tree_head` and `invalid_log_domain`.
 */
export function treeHeadDigest(domain: LogDomain, head: TreeHead): Uint8Array {
  if (!isCount(head.size) || head.root.length !== HASH_BYTES)
    throw new FormatError(
      'invalid_tree_head',
      `expected a size of 0 to 2^53-1 and a root of ${HASH_BYTES} bytes`,
    )
  return typedDataDigest(
    domain,
    concatBytes(TREE_HEAD_TYPE_HASH, encodeUintWord(head.size), head.root),
  )
}

/**
 * EIP-712 digest (32 bytes) that a notary signs for a log's domain. `struct`: the hash of the type,
 * then each member as 32 bytes. Throws FormatError `invalid_log_domain`.
 */
export function typedDataDigest(domain: LogDomain, struct: Uint8Array): Uint8Array {
  return keccak_256(concatBytes(TYPED_DATA_PREFIX, domainSeparator(domain), keccak_256(struct)))
}

/**
 * Verifies that `notary` (an address: 0x, 40 lower-case hex digits) signed the head for this chain
 * and contract. Returns the head. `recover`: see recoverPublicKey. Throws FormatError as
 * treeHeadDigest and recoverPublicKey do, ProofError `wrong_signer`. Does NOT prove that the head
 * is the newest, that it was anchored, or that the notary signed no contradictory head (compare
 * with the heads on the chain by verifyConsistency).
 */
export function verifyTreeHead(
  signed: {
    readonly domain: LogDomain
    readonly head: TreeHead
    readonly signature: Uint8Array
    readonly notary: string
  },
  recover?: PointRecovery,
): TreeHead {
  const digest = treeHeadDigest(signed.domain, signed.head)
  const signer = addressOf(recoverPublicKey({ digest, signature: signed.signature }, recover))
  if (signer !== signed.notary)
    throw new ProofError('wrong_signer', "expected the notary's own signature")
  return signed.head
}

const TYPED_DATA_PREFIX = new Uint8Array([0x19, 0x01])
const DOMAIN_TYPE_HASH = hashText(
  'EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)',
)
const NAME_HASH = hashText('Affidavit')
const VERSION_HASH = hashText('1')
const TREE_HEAD_TYPE_HASH = hashText('TreeHead(uint64 size,bytes32 root)')

function domainSeparator(domain: LogDomain): Uint8Array {
  if (!isCount(domain.chainId) || !/^0x[0-9a-f]{40}$/.test(domain.contract))
    throw new FormatError(
      'invalid_log_domain',
      'expected a chain id and a lower-case contract address',
    )
  const contract = concatBytes(new Uint8Array(12), decodeHex(domain.contract))
  return keccak_256(
    concatBytes(
      DOMAIN_TYPE_HASH,
      NAME_HASH,
      VERSION_HASH,
      encodeUintWord(domain.chainId),
      contract,
    ),
  )
}

/** A number from 0 to 2^53-1 as a word of the contract ABI: 32 bytes, big-endian. */
export function encodeUintWord(value: number): Uint8Array {
  const word = new Uint8Array(HASH_BYTES)
  new DataView(word.buffer).setBigUint64(HASH_BYTES - 8, BigInt(value))
  return word
}

/** Keccak-256 of a text. EIP-712 hashes types and names in this way. */
export function hashText(text: string): Uint8Array {
  return keccak_256(encodeUtf8(text))
}
