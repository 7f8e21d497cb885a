import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { encodeRlp, Interface, keccak256, toBeArray, Wallet, zeroPadValue } from 'ethers'
import { decodeHex } from '#attestation/bytes.ts'
import { AFFIDAVIT } from '#attestation/contract/artifact.ts'
import {
  type BundleBlock,
  createBundle,
  type EvidenceBundle,
} from '#attestation/evidence/bundle.ts'
import type { BundlePolicy, ChainFacts } from '#attestation/evidence/policy.ts'
import { buildTrieProof } from '#attestation/evidence/trie.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { LogProof } from '#attestation/log-proof-form.ts'
import { signAnchorTransaction } from '#src/chain/sign-anchor.ts'
import { MADE_AT } from '../../support/nitro-builder/development-pki.ts'
import {
  buildDocument,
  type Fields,
  PCR_VALUES,
  standardChain,
} from '../../support/nitro-builder/document-builder.ts'
import { buildRecord, CHAIN_ID, CONTRACT, NOTARY, type RecordParts } from '../build-record.ts'

export const RELAYER_KEY = `0x${'5e'.repeat(32)}`

/** When the completion finished, Unix milliseconds: a minute after the document was made. */
export const FINISHED_AT = MADE_AT.getTime() + 60_999

export const BOOT_CONFIGURATION: JsonObject = {
  protocol_version: 1,
  providers: [
    {
      name: 'demo',
      origin: 'https://provider.example',
      path: '/v1/chat/completions',
      models: ['demo/*'],
    },
    { name: 'other', origin: 'https://other.example', path: '/v1/chat/completions', models: ['*'] },
  ],
  ca_sha256: 'ca'.repeat(32),
  chain_id: CHAIN_ID,
  contract: CONTRACT,
}

/**
 * What to make otherwise than an honest enclave, gateway and chain would; all that depends on it is
 * computed from it.
 */
export type EvidenceParts = {
  readonly record?: RecordParts
  readonly boot?: JsonObject
  /** Fields of the attestation document. */
  readonly document?: Fields
  /** Of the record as stored. */
  readonly stored?: JsonObject
  /** What the transaction brings, and where. */
  readonly anchor?: Partial<{
    chainId: number
    contract: string
    size: number
    root: Uint8Array
    signature: Uint8Array
    nonce: number
  }>
  /** The raw transaction, instead of one signed here. */
  readonly transaction?: string
  /** Other transactions in the block: before and after ours. */
  readonly neighbours?: readonly [number, number]
  readonly status?: 0 | 1
  readonly events?: readonly BlockEvent[]
  /** Fields of the block's header, as JSON-RPC names them. */
  readonly header?: Readonly<Record<string, string>>
  readonly isMined?: boolean
}

export type BlockEvent = {
  readonly address: string
  readonly topics: readonly string[]
  readonly data: string
}

/** A bundle with the policy under which it is verified, and the chain that has its block. */
export type BuiltEvidence = {
  readonly bundle: EvidenceBundle
  readonly policy: BundlePolicy
  readonly chain: ChainFacts
}

/**
 * A valid bundle, but for what the parts change; made by ethers, the platform's hashes and the
 * reference log.
 */
export function buildEvidence(parts: EvidenceParts = {}): BuiltEvidence {
  const { boot = BOOT_CONFIGURATION } = parts
  const stored = buildStored(parts, boot)
  const log = stored.log as LogProof
  const transaction = parts.transaction ?? signAnchor(log, parts.anchor)
  const block = parts.isMined === false ? null : buildBlock(transaction, log, parts)
  const record = { ...stored, tx_hash: keccak256(transaction), ...parts.stored }
  return {
    bundle: createBundle({ record, bootConfiguration: boot, transaction, block }),
    policy: policyFor(boot),
    chain: {
      chainId: CHAIN_ID,
      blockHash: block?.hash ?? null,
      newestBlock: (block?.number ?? 0) + 9,
    },
  }
}

/** The policy that expects exactly the enclave of these tests. */
export function policyFor(boot: JsonObject): BundlePolicy {
  const expected = [0, 1, 2].map((index): [number, Uint8Array] => [
    index,
    PCR_VALUES.get(index) ?? new Uint8Array(),
  ])
  return {
    roots: [standardChain.rootSha256],
    measurements: [new Map(expected)],
    configurations: [digestOf(boot)],
  }
}

/** SHA-256 of canonical JSON, by the platform. */
export function digestOf(boot: JsonObject): Uint8Array {
  return createHash('sha256')
    .update(String(canonicalize(boot)))
    .digest()
}

/** An attestation document of the tests' notary, as the record carries it. */
export function documentFor(boot: JsonObject, fields: Fields = {}): string {
  const document = buildDocument({
    fields: {
      public_key: Buffer.from(NOTARY.signingKey.publicKey.slice(2), 'hex'),
      user_data: Buffer.from(digestOf(boot)),
      nonce: null,
      ...fields,
    },
  })
  return Buffer.from(document).toString('base64')
}

/** The record as stored. It may have a form that no bundle can have. */
export function buildStored(
  { record = {}, document }: EvidenceParts,
  boot: JsonObject = BOOT_CONFIGURATION,
): JsonObject {
  const receipt = { started_at: FINISHED_AT - 2000, finished_at: FINISHED_AT, ...record.receipt }
  const { stored } = buildRecord({ ...record, receipt })
  return {
    ...stored,
    attestation: documentFor(boot, document),
    created_at: Math.floor(receipt.finished_at / 1000),
  }
}

/** The raw transaction that anchors the log's head, signed by the relayer. */
export function signAnchor(log: LogProof, changed: EvidenceParts['anchor'] = {}): string {
  const { chainId = log.chain_id, contract = log.contract } = changed
  const { raw } = signAnchorTransaction({
    relayerKey: RELAYER_KEY,
    chainId,
    contract,
    nonce: changed.nonce ?? 7,
    head: {
      size: changed.size ?? log.size,
      root: changed.root ?? decodeHex(log.root),
      signature: changed.signature ?? decodeHex(log.signature),
    },
    fees: { maxFeePerGasWei: 500_000_000_000n, maxPriorityFeePerGasWei: 1_000_000_000n },
  })
  return raw
}

/** The event with which the contract takes a head. */
export function anchoredEvent(log: LogProof): BlockEvent {
  const { topics, data } = AFFIDAVIT_INTERFACE.encodeEventLog('Anchored', [
    NOTARY.address,
    log.size,
    `0x${log.root}`,
  ])
  return { address: log.contract, topics, data }
}

const AFFIDAVIT_INTERFACE = new Interface(AFFIDAVIT.abi)

function buildBlock(transaction: string, log: LogProof, parts: EvidenceParts): BundleBlock {
  const [before, after] = parts.neighbours ?? [5, 20]
  const { status = 1, events = [anchoredEvent(log)] } = parts
  const receipt = encodeReceipt(status, events)
  const place = <Entry>(entry: Entry, other: (at: number) => Entry): readonly Entry[] =>
    Array.from({ length: before + 1 + after }, (_, at) => (at === before ? entry : other(at)))
  const transactions = buildTrieProof(place(decodeHex(transaction), otherTransaction), before)
  const receipts = buildTrieProof(
    place(receipt, () => encodeReceipt(1, [])),
    before,
  )
  const header = encodeHeader({
    ...HEADER,
    timestamp: timeAfter(parts.record?.receipt?.finished_at ?? FINISHED_AT),
    transactionsRoot: hexOf(transactions.root),
    receiptsRoot: hexOf(receipts.root),
    ...parts.header,
  })
  return {
    number: Number(parts.header?.number ?? HEADER.number),
    hash: keccak256(header),
    header,
    transaction_index: before,
    transaction_proof: transactions.nodes.map(hexOf),
    receipt_proof: receipts.nodes.map(hexOf),
  }
}

/** A header like those of the mainnet since Prague: 21 fields in their order. */
const HEADER = {
  parentHash: `0x${'11'.repeat(32)}`,
  sha3Uncles: `0x${'22'.repeat(32)}`,
  miner: `0x${'33'.repeat(20)}`,
  stateRoot: `0x${'44'.repeat(32)}`,
  transactionsRoot: '',
  receiptsRoot: '',
  logsBloom: `0x${'00'.repeat(256)}`,
  difficulty: '0x0',
  number: '0x1406f40',
  gasLimit: '0x1c9c380',
  gasUsed: '0xd440',
  timestamp: '',
  extraData: '0x6265617665726275696c642e6f7267',
  mixHash: `0x${'55'.repeat(32)}`,
  nonce: '0x0000000000000000',
  baseFeePerGas: '0x348538d3',
  withdrawalsRoot: `0x${'66'.repeat(32)}`,
  blobGasUsed: '0x60000',
  excessBlobGas: '0x0',
  parentBeaconBlockRoot: `0x${'77'.repeat(32)}`,
  requestsHash: `0x${'88'.repeat(32)}`,
}

/** Fields that are numbers: RLP writes them without leading zeros. */
const QUANTITY = /^(difficulty|number|timestamp)$|gas/i

function encodeHeader(fields: Readonly<Record<string, string>>): string {
  return encodeRlp(
    Object.entries(fields).map(([name, value]) => (QUANTITY.test(name) ? toBeArray(value) : value)),
  )
}

/** The time of a block that is made 12 seconds later, as JSON-RPC writes it. */
function timeAfter(finishedAt: number): string {
  return `0x${Math.ceil(finishedAt / 1000 + 12).toString(16)}`
}

const NEIGHBOUR = new Wallet(`0x${'6f'.repeat(32)}`)

/** Some other transaction; its bytes are not looked at. */
function otherTransaction(at: number): Uint8Array {
  const fields = [toBeArray(CHAIN_ID), toBeArray(at), zeroPadValue(NEIGHBOUR.address, 32)]
  return decodeHex(`0x02${encodeRlp(fields).slice(2)}`)
}

function encodeReceipt(status: number, events: readonly BlockEvent[]): Uint8Array {
  const fields = encodeRlp([
    toBeArray(status),
    toBeArray(54_336),
    `0x${'00'.repeat(256)}`,
    events.map(({ address, topics, data }) => [address, [...topics], data]),
  ])
  return decodeHex(`0x02${fields.slice(2)}`)
}

function hexOf(bytes: Uint8Array): string {
  return `0x${Buffer.from(bytes).toString('hex')}`
}
