import { z } from 'zod'
import { concatBytes, decodeHex } from '#attestation/bytes.ts'
import { encodeRlp, type RlpItem } from '#attestation/evidence/rlp.ts'
import { BigQuantity, HexBytes } from '#audit/rpc-forms.ts'

/**
 * Encodes JSON-RPC answers (ethereum/execution-apis) as the bytes that a chain hashes. The answers
 * are not trusted: the caller compares the hash. An unknown field makes the hash differ.
 */

export const HeaderJson = z.record(z.string(), z.unknown())

/** Includes the fields of later forks if `block` has them. */
export function encodeHeader(block: z.infer<typeof HeaderJson>): Uint8Array {
  const fields = HEADER_FIELDS.flatMap(([name, kind]): readonly RlpItem[] => {
    const value = block[name]
    if (value === undefined || value === null) return []
    return [
      kind === 'data'
        ? encodeData(HexBytes.parse(value))
        : encodeQuantity(BigQuantity.parse(value)),
    ]
  })
  return encodeRlp(fields)
}

/**
 * Fields in the order of the header: yellow paper 4.4; EIP-1559, 4895, 4844 (two), 4788, 7685,
 * 7928, 7843.
 */
const HEADER_FIELDS: readonly (readonly [name: string, kind: 'data' | 'quantity'])[] = [
  ['parentHash', 'data'],
  ['sha3Uncles', 'data'],
  ['miner', 'data'],
  ['stateRoot', 'data'],
  ['transactionsRoot', 'data'],
  ['receiptsRoot', 'data'],
  ['logsBloom', 'data'],
  ['difficulty', 'quantity'],
  ['number', 'quantity'],
  ['gasLimit', 'quantity'],
  ['gasUsed', 'quantity'],
  ['timestamp', 'quantity'],
  ['extraData', 'data'],
  ['mixHash', 'data'],
  ['nonce', 'data'],
  ['baseFeePerGas', 'quantity'],
  ['withdrawalsRoot', 'data'],
  ['blobGasUsed', 'quantity'],
  ['excessBlobGas', 'quantity'],
  ['parentBeaconBlockRoot', 'data'],
  ['requestsHash', 'data'],
  ['blockAccessListHash', 'data'],
  ['slotNumber', 'quantity'],
]

/** EIP-2718. A larger type could be the first byte of an RLP list. */
export const TransactionType = BigQuantity.default('0x0').refine((type) => Number(type) <= 0x7f)

/**
 * Only deposits of the OP stack have the last two members. A deposit before the Canyon fork has no
 * version, and its hash covers neither member.
 */
export const ReceiptJson = z.object({
  type: TransactionType,
  status: BigQuantity,
  cumulativeGasUsed: BigQuantity,
  logsBloom: HexBytes,
  logs: z.array(z.object({ address: HexBytes, topics: z.array(HexBytes), data: HexBytes })),
  depositNonce: BigQuantity.nullish(),
  depositReceiptVersion: BigQuantity.nullish(),
})

/** The receipts trie hashes these bytes (EIP-2718, EIP-658; deposits of the OP stack). */
export function encodeReceipt(receipt: z.infer<typeof ReceiptJson>): Uint8Array {
  const type = Number(receipt.type)
  const fields = [
    encodeQuantity(receipt.status),
    encodeQuantity(receipt.cumulativeGasUsed),
    encodeData(receipt.logsBloom),
    receipt.logs.map(({ address, topics, data }) => [
      encodeData(address),
      topics.map(encodeData),
      encodeData(data),
    ]),
    ...(type === DEPOSIT_TYPE ? encodeDeposit(receipt) : []),
  ]
  return type === 0 ? encodeRlp(fields) : encodeTyped(type, fields)
}

/** Deposits of the OP stack. */
export const DEPOSIT_TYPE = 0x7e

function encodeDeposit({
  depositNonce,
  depositReceiptVersion,
}: z.infer<typeof ReceiptJson>): readonly Uint8Array[] {
  // Before Canyon, endpoints report a nonce that is not hashed.
  if (depositReceiptVersion === undefined || depositReceiptVersion === null) return []
  return [encodeQuantity(depositNonce ?? '0x0'), encodeQuantity(depositReceiptVersion)]
}

export function encodeTyped(type: number, fields: readonly RlpItem[]): Uint8Array {
  return concatBytes(Uint8Array.of(type), encodeRlp(fields))
}

/** Accepts upper and lower case. */
export function encodeData(hex: string): Uint8Array {
  return decodeHex(hex.toLowerCase())
}

/** RLP writes a number without leading zeros. */
export function encodeQuantity(hex: string): Uint8Array {
  const digits = hex.slice('0x'.length).replace(/^0+/, '')
  return encodeData(digits.length % 2 === 0 ? digits : `0${digits}`)
}
