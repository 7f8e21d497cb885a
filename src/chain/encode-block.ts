import { z } from 'zod'
import { concatBytes, decodeHex } from '../../attestation/bytes.ts'
import { encodeRlp, type RlpItem } from '../../attestation/evidence/rlp.ts'
import { BigQuantity, HexBytes } from './rpc.ts'

/*
 * What a chain hashes, made from what its JSON-RPC says (ethereum/execution-apis). Nothing here is
 * believed: whoever calls compares the hash of the result, which differs when the chain has fields
 * that are not known here.
 */

/**
 * A block as JSON-RPC describes it: the members that can be part of a header, in whatever number it
 * has them.
 */
export const HeaderJson = z.record(z.string(), z.unknown())

/** RLP of the header, with as many of the fields that later forks added as `block` has. */
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

/** Fields in the order of the header: yellow paper 4.4; EIP-1559, 4895, 4844 (two), 4788, 7685. */
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
]

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

/** A transaction as JSON-RPC describes it; which members it has depends on its type. */
export const TransactionJson = z.object({
  type: BigQuantity.default('0x0'),
  chainId: BigQuantity.nullish(),
  nonce: BigQuantity,
  gasPrice: BigQuantity.nullish(),
  maxPriorityFeePerGas: BigQuantity.nullish(),
  maxFeePerGas: BigQuantity.nullish(),
  gas: BigQuantity,
  to: HexBytes.nullish(),
  value: BigQuantity,
  input: HexBytes,
  accessList: AccessList.nullish(),
  maxFeePerBlobGas: BigQuantity.nullish(),
  blobVersionedHashes: z.array(HexBytes).nullish(),
  authorizationList: AuthorizationList.nullish(),
  yParity: BigQuantity.nullish(),
  v: BigQuantity.nullish(),
  r: BigQuantity,
  s: BigQuantity,
})

/**
 * The raw transaction of types 0 to 4 (legacy; EIP-2930, 1559, 4844, 7702); null for another type.
 */
export function encodeTransaction(json: z.infer<typeof TransactionJson>): Uint8Array | null {
  const type = Number(json.type)
  const number = (value: string | null | undefined) => encodeQuantity(value ?? '0x0')
  const to = encodeData(json.to ?? '0x')
  const [nonce, gas, value, input] = [
    number(json.nonce),
    number(json.gas),
    number(json.value),
    encodeData(json.input),
  ]
  const proof = [number(json.yParity ?? json.v), number(json.r), number(json.s)]
  if (type === 0)
    return encodeRlp([
      nonce,
      number(json.gasPrice),
      gas,
      to,
      value,
      input,
      number(json.v),
      ...proof.slice(1),
    ])
  const call = [gas, to, value, input, encodeAccessList(json.accessList ?? [])]
  const head = [number(json.chainId), nonce]
  const fees = [number(json.maxPriorityFeePerGas), number(json.maxFeePerGas)]
  if (type === 1) return encodeTyped(type, [...head, number(json.gasPrice), ...call, ...proof])
  if (type === 2) return encodeTyped(type, [...head, ...fees, ...call, ...proof])
  if (type === 3) {
    const blobs = [number(json.maxFeePerBlobGas), (json.blobVersionedHashes ?? []).map(encodeData)]
    return encodeTyped(type, [...head, ...fees, ...call, ...blobs, ...proof])
  }
  if (type !== 4) return null
  const authorizations = encodeAuthorizations(json.authorizationList ?? [])
  return encodeTyped(type, [...head, ...fees, ...call, authorizations, ...proof])
}

/** A receipt as JSON-RPC describes it. */
export const ReceiptJson = z.object({
  type: BigQuantity.default('0x0'),
  status: BigQuantity,
  cumulativeGasUsed: BigQuantity,
  logsBloom: HexBytes,
  logs: z.array(z.object({ address: HexBytes, topics: z.array(HexBytes), data: HexBytes })),
})

/** The receipt as it stands in the receipts trie (EIP-2718, EIP-658). */
export function encodeReceipt({
  type,
  status,
  cumulativeGasUsed,
  logsBloom,
  logs,
}: z.infer<typeof ReceiptJson>): Uint8Array {
  const fields = [
    encodeQuantity(status),
    encodeQuantity(cumulativeGasUsed),
    encodeData(logsBloom),
    logs.map(({ address, topics, data }) => [
      encodeData(address),
      topics.map(encodeData),
      encodeData(data),
    ]),
  ]
  return Number(type) === 0 ? encodeRlp(fields) : encodeTyped(Number(type), fields)
}

/** An envelope of EIP-2718: the type, then the fields as RLP. */
export function encodeTyped(type: number, fields: readonly RlpItem[]): Uint8Array {
  return concatBytes(Uint8Array.of(type), encodeRlp(fields))
}

function encodeAccessList(list: z.infer<typeof AccessList>): RlpItem {
  return list.map(({ address, storageKeys }) => [encodeData(address), storageKeys.map(encodeData)])
}

function encodeAuthorizations(list: z.infer<typeof AuthorizationList>): RlpItem {
  return list.map(({ chainId, address, nonce, yParity, r, s }) => [
    encodeQuantity(chainId),
    encodeData(address),
    ...[nonce, yParity, r, s].map(encodeQuantity),
  ])
}

function encodeData(hex: string): Uint8Array {
  return decodeHex(hex.toLowerCase())
}

/** A number, 0x hex, as RLP writes it: without leading zeros. */
export function encodeQuantity(hex: string): Uint8Array {
  const digits = hex.slice('0x'.length).replace(/^0+/, '')
  return encodeData(digits.length % 2 === 0 ? digits : `0${digits}`)
}
