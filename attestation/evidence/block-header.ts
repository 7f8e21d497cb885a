import { keccak_256 } from '@noble/hashes/sha3.js'
import { encodeHex, HASH_BYTES } from '../bytes.ts'
import { FormatError } from '../errors.ts'
import { decodeRlp, rlpBytes, rlpList, rlpNumber, rlpUint256 } from './rlp.ts'

/** Bytes of a header. Ethereum's have about 600; some chains put lists of validators into extraData. */
export const HEADER_BYTES_MAX = 16_384

/** What of a block's header an anchor needs. */
export type BlockHeader = {
  /** Keccak-256 of the header: 0x, lower case. The one value to look up on the chain. */
  readonly hash: string
  readonly number: number
  /** Unix seconds, by the block's producer. */
  readonly timestamp: number
  readonly transactionsRoot: Uint8Array
  readonly receiptsRoot: Uint8Array
}

/**
 * The header whose RLP encoding attacker-controlled `bytes` are (Ethereum yellow paper, section 4.4): the 15 fields
 * that every header has, in their forms, then any number of byte strings, which later forks added (base fee,
 * withdrawals root, …) and which are hashed but not looked at. Throws FormatError `invalid_block_header` and
 * `invalid_rlp`.
 *
 * Does NOT prove that any chain has this block: anyone can write a header. Compare its hash with the chain's.
 */
export function decodeBlockHeader(bytes: Uint8Array): BlockHeader {
  if (bytes.length > HEADER_BYTES_MAX)
    throw invalid(`expected a header of at most ${HEADER_BYTES_MAX} bytes, got ${bytes.length}`)
  const fields = rlpList(decodeRlp(bytes), 'a block header')
  if (fields.length < FIELDS.length)
    throw invalid(`expected a header of at least ${FIELDS.length} fields, got ${fields.length}`)
  for (const [at, field] of fields.entries()) {
    const { name, form } = FIELDS[at] ?? LATER_FIELD
    if (form === 'number') rlpUint256(field, `the header's ${name}`)
    else rlpBytes(field, `the header's ${name}`, form === 'bytes' ? undefined : form)
  }
  return {
    hash: `0x${encodeHex(keccak_256(bytes))}`,
    transactionsRoot: rlpBytes(fields[4], 'transactionsRoot', HASH_BYTES),
    receiptsRoot: rlpBytes(fields[5], 'receiptsRoot', HASH_BYTES),
    number: rlpNumber(fields[8], "the header's number"),
    timestamp: rlpNumber(fields[11], "the header's timestamp"),
  }
}

/** A number of bytes, a number without leading zeros, or a byte string of any length. */
type FieldForm = number | 'number' | 'bytes'

const LATER_FIELD: { readonly name: string; readonly form: FieldForm } = {
  name: 'later fields',
  form: 'bytes',
}

/** Order and forms: yellow paper, section 4.4, equation 44 (Shanghai version); EIP-1559 and later append. */
const FIELDS: readonly { readonly name: string; readonly form: FieldForm }[] = [
  { name: 'parentHash', form: 32 },
  { name: 'ommersHash', form: 32 },
  { name: 'beneficiary', form: 20 },
  { name: 'stateRoot', form: 32 },
  { name: 'transactionsRoot', form: 32 },
  { name: 'receiptsRoot', form: 32 },
  { name: 'logsBloom', form: 256 },
  { name: 'difficulty', form: 'number' },
  { name: 'number', form: 'number' },
  { name: 'gasLimit', form: 'number' },
  { name: 'gasUsed', form: 'number' },
  { name: 'timestamp', form: 'number' },
  { name: 'extraData', form: 'bytes' },
  { name: 'mixHash', form: 32 },
  { name: 'nonce', form: 8 },
]

function invalid(message: string): FormatError {
  return new FormatError('invalid_block_header', message)
}
