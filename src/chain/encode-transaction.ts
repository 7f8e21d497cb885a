import { z } from 'zod'
import { encodeRlp, type RlpItem } from '#attestation/evidence/rlp.ts'
import { BigQuantity, HexBytes } from '#audit/rpc-forms.ts'
import {
  DEPOSIT_TYPE,
  encodeData,
  encodeQuantity,
  encodeTyped,
  TransactionType,
} from './encode-block.ts'

/**
 * Some endpoints serve transactions only as JSON, so the raw bytes are encoded here. The JSON is
 * not trusted: the caller compares the hash.
 */

/** Returns null for an unknown type or malformed members. */
export function encodeTransaction(json: Readonly<Record<string, unknown>>): Uint8Array | null {
  const type = TransactionType.safeParse(json.type)
  const members = type.success ? MEMBERS_BY_TYPE.get(Number(type.data)) : undefined
  if (members === undefined) return null
  const fields: RlpItem[] = []
  for (const [name, form] of members) {
    // Older endpoints report the parity only in `v`.
    const given = json[name] ?? (name === 'yParity' ? json.v : undefined)
    const field = FORMS[form](given ?? undefined)
    if (field === null) return null
    fields.push(field)
  }
  return Number(type.data) === 0 ? encodeRlp(fields) : encodeTyped(Number(type.data), fields)
}

/** The RLP form of a member. A missing member is empty, 0, false or an empty list. */
type Form = keyof typeof FORMS
type Member = readonly [name: string, form: Form]

const AccessList = z.array(z.object({ address: HexBytes, storageKeys: z.array(HexBytes) }))
const AuthorizationList = z.array(
  z.object({
    chainId: BigQuantity,
    address: HexBytes,
    nonce: BigQuantity,
    yParity: BigQuantity,
    r: BigQuantity,
    s: BigQuantity,
  }),
)

const FORMS = {
  data: form(HexBytes.default('0x'), encodeData),
  quantity: form(BigQuantity.default('0x0'), encodeQuantity),
  flag: form(z.boolean().default(false), (flag) => encodeQuantity(flag ? '0x1' : '0x0')),
  hashes: form(z.array(HexBytes).default([]), (hashes) => hashes.map(encodeData)),
  accessList: form(AccessList.default([]), (list) =>
    list.map(({ address, storageKeys }) => [encodeData(address), storageKeys.map(encodeData)]),
  ),
  authorizations: form(AuthorizationList.default([]), (list) =>
    list.map(({ chainId, address, nonce, yParity, r, s }) => [
      encodeQuantity(chainId),
      encodeData(address),
      ...[nonce, yParity, r, s].map(encodeQuantity),
    ]),
  ),
}

function form<Value>(
  shape: z.ZodType<Value>,
  encode: (value: Value) => RlpItem,
): (given: unknown) => RlpItem | null {
  return (given) => {
    const { success, data } = shape.safeParse(given)
    return success ? encode(data) : null
  }
}

const CALL: readonly Member[] = [
  ['gas', 'quantity'],
  ['to', 'data'],
  ['value', 'quantity'],
  ['input', 'data'],
]
const NUMBERED: readonly Member[] = [
  ['chainId', 'quantity'],
  ['nonce', 'quantity'],
]
const FEES: readonly Member[] = [
  ['maxPriorityFeePerGas', 'quantity'],
  ['maxFeePerGas', 'quantity'],
]
const LISTED: readonly Member[] = [...CALL, ['accessList', 'accessList']]
const SIGNATURE: readonly Member[] = [
  ['yParity', 'quantity'],
  ['r', 'quantity'],
  ['s', 'quantity'],
]
const BLOBS: readonly Member[] = [
  ['maxFeePerBlobGas', 'quantity'],
  ['blobVersionedHashes', 'hashes'],
]
const DEPOSIT: readonly Member[] = [
  ['sourceHash', 'data'],
  ['from', 'data'],
  ['to', 'data'],
  ['mint', 'quantity'],
  ['value', 'quantity'],
  ['gas', 'quantity'],
  ['isSystemTx', 'flag'],
  ['input', 'data'],
]
const ARBITRUM_INTERNAL: readonly Member[] = [
  ['chainId', 'quantity'],
  ['input', 'data'],
]

/**
 * Members by type: legacy; EIP-2930, 1559, 4844, 7702; deposits of the OP stack; the first
 * transaction of each block of Arbitrum.
 */
const MEMBERS_BY_TYPE: ReadonlyMap<number, readonly Member[]> = new Map([
  [
    0,
    [
      ['nonce', 'quantity'],
      ['gasPrice', 'quantity'],
      ...CALL,
      ['v', 'quantity'],
      ...SIGNATURE.slice(1),
    ],
  ],
  [1, [...NUMBERED, ['gasPrice', 'quantity'], ...LISTED, ...SIGNATURE]],
  [2, [...NUMBERED, ...FEES, ...LISTED, ...SIGNATURE]],
  [3, [...NUMBERED, ...FEES, ...LISTED, ...BLOBS, ...SIGNATURE]],
  [4, [...NUMBERED, ...FEES, ...LISTED, ['authorizationList', 'authorizations'], ...SIGNATURE]],
  [DEPOSIT_TYPE, DEPOSIT],
  [0x6a, ARBITRUM_INTERNAL],
])
