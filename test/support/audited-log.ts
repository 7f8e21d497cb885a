import { createHash, randomBytes } from 'node:crypto'
import { Wallet } from 'ethers'
import { decodeHex, encodeHex, encodeUtf8 } from '#attestation/bytes.ts'
import { digestBootConfiguration } from '#attestation/evidence/boot-configuration.ts'
import {
  type BootHead,
  type BootStatement,
  bootStatementUserData,
} from '#attestation/evidence/boot-statement.ts'
import { headAttestationUserData } from '#attestation/evidence/head-attestation.ts'
import type { HeadAttestation } from '#attestation/evidence/head-attestation-form.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import { decodeAttestationPayload } from '#attestation/nitro/document.ts'
import { treeHeadDigest } from '#attestation/tree-head.ts'
import { makeAccount, type NotaryAccount } from '#enclave/notary-key.ts'
import type { Nsm } from '#enclave/nsm/nsm.ts'
import { signAnchorTransaction } from '#src/chain/sign-anchor.ts'
import { createReference } from '../attestation/merkle/reference.ts'
import { TEST_FEES, type TestChain } from './chain.ts'
import { type Sealed, sealCompletion } from './sealed-completion.ts'
import { openSoftwareNsm } from './software-nsm.ts'

/** Where the anchors of a log's heads go; without a chain, anchors are invented. */
export type Anchoring = {
  readonly chain: Pick<TestChain, 'chainId' | 'contract' | 'relayerKey' | 'rpc'> | null
  /** The relayer's next nonce, counted up. */
  nonce: number
}

/** A new relayer for one gateway, with coins on the chain. */
export async function fundRelayer(chain: NonNullable<Anchoring['chain']>): Promise<Anchoring> {
  const { address, privateKey } = Wallet.createRandom()
  await chain.rpc.call('anvil_setBalance', [address, '0x56bc75e2d63100000'])
  const { chainId, contract, rpc } = chain
  return { chain: { chainId, contract, rpc, relayerKey: privateKey }, nonce: 0 }
}

/** A notary with its security module, as an enclave has them. */
export type TestNotary = {
  readonly account: NotaryAccount
  readonly nsm: Nsm
  readonly bootConfiguration: JsonObject
  readonly chainId: number
  readonly contract: string
}

export type BuiltHead = {
  readonly size: number
  readonly root: Uint8Array
  readonly signature: Uint8Array
  readonly createdAt: number
  readonly anchor: {
    readonly tx_hash: string
    readonly state: 'pending' | 'mined' | 'confirmed' | 'reverted'
    readonly block_number: number | null
    readonly block_hash: string | null
  }
}

/** One whole history of a notary: what an honest gateway would serve. */
export type BuiltLog = {
  readonly notary: TestNotary
  /** Canonical receipts, and their leaves. */
  readonly leafData: readonly Uint8Array[]
  readonly leaves: readonly Uint8Array[]
  readonly heads: readonly BuiltHead[]
  /** Stored records as they are served, by index. */
  readonly records: readonly JsonObject[]
  readonly attestations: readonly HeadAttestation[]
  /** The enclave's statement about the logs before its own; null: no statement is served. */
  readonly bootStatement: BootStatement | null
  readonly reference: ReturnType<typeof createReference>
  /** Attestation document of the records, standard base64. */
  readonly document: string
}

/** Gives a notary of a new account and a new security module in software, whose clock is `now`. */
export async function createTestNotary(
  domain: { readonly chainId: number; readonly contract: string } = {
    chainId: 31337,
    contract: `0x${'ab'.repeat(20)}`,
  },
  now: () => number = Date.now,
): Promise<TestNotary> {
  const nsm = await openSoftwareNsm({
    rootFile: null,
    now,
  })
  return {
    nsm,
    account: await makeAccount(async (length) => randomBytes(length)),
    bootConfiguration: {
      protocol_version: 1,
      providers: [
        { name: 'demo', origin: 'http://127.0.0.1:1', path: '/v1/chat/completions', models: ['*'] },
      ],
      ca_sha256: '0'.repeat(64),
      chain_id: domain.chainId,
      contract: domain.contract,
    },
    chainId: domain.chainId,
    contract: domain.contract,
  }
}

/**
 * Builds a history of a notary: completions sealed under its key, with a signed and anchored head
 * after each batch and an attestation at each of the sizes in `attestedSizes`. Different `salt`s
 * give different histories.
 */
export async function buildLog(
  notary: TestNotary,
  options: {
    readonly batches: readonly number[]
    readonly salt?: string
    /** The callers' demands in each request. */
    readonly demands?: JsonObject
    readonly anchoring: Anchoring
    readonly attestedSizes?: readonly number[]
    /** The finish time in the completions, Unix milliseconds. Default: now. */
    readonly finishedAtMs?: number
    /** Another history with which this one begins, up to its head number `heads`. */
    readonly after?: { readonly log: BuiltLog; readonly heads: number }
    /** Logs whose newest heads the enclave was shown. Default: none. */
    readonly shown?: readonly BuiltLog[]
  },
): Promise<BuiltLog> {
  const { anchoring, salt = '', demands = null, after, attestedSizes = [] } = options
  const configuration = digestBootConfiguration(notary.bootConfiguration)
  const document = (await attest(notary, configuration, null)).toString('base64')
  const kept = after?.log.heads.slice(0, after.heads) ?? []
  const keptSize = kept.at(-1)?.size ?? 0
  const size = keptSize + options.batches.reduce((sum, count) => sum + count, 0)
  const finishedAtMs = options.finishedAtMs ?? Date.now()
  const sealed = Array.from({ length: size - keptSize }, (_, at) =>
    sealCompletion(notary.account, { index: keptSize + at, salt, demands, finishedAtMs }),
  )
  const leafData = [
    ...(after?.log.leafData.slice(0, keptSize) ?? []),
    ...sealed.map(({ receipt }) => encodeUtf8(canonicalizeJson(receipt))),
  ]
  const reference = createReference(leafData)
  const sizes = options.batches.map(
    (_, at) => keptSize + options.batches.slice(0, at + 1).reduce((sum, count) => sum + count, 0),
  )
  const heads = [
    ...kept,
    ...(await anchorHeads(
      notary,
      sizes.map((one) => ({ size: one, root: reference.root(one) })),
      anchoring,
    )),
  ]
  const records = sealed.map((one) => storedRecord(one, { notary, heads, reference, document }))
  return {
    notary,
    leafData,
    leaves: leafData.map(hashLeaf),
    heads,
    reference,
    document,
    bootStatement: await stateBoot(notary, options.shown ?? []),
    records: [...(after?.log.records.slice(0, keptSize) ?? []), ...records],
    attestations: await attestHeads(
      notary,
      attestedSizes.map((one) => ({ size: one, root: reference.root(one) })),
      anchoring,
    ),
  }
}

/** States that the enclave was shown the newest heads of these logs. */
export async function stateBoot(
  notary: TestNotary,
  shown: readonly BuiltLog[],
): Promise<BootStatement> {
  const heads = shown
    .flatMap(newestHead)
    .toSorted((one, other) => (one.notary < other.notary ? -1 : 1))
  const configuration = digestBootConfiguration(notary.bootConfiguration)
  const userData = bootStatementUserData({ configuration, notary: notary.account.notary, heads })
  const document = await attest(notary, userData, null)
  const createdAt = Math.floor(decodeAttestationPayload(document).timestampMs / 1000)
  return { heads, created_at: createdAt, document: document.toString('base64') }
}

function newestHead({ notary, heads }: BuiltLog): readonly BootHead[] {
  const head = heads.at(-1)
  if (head === undefined) return []
  const { size, root, signature } = head
  return [
    {
      notary: notary.account.notary,
      size,
      root: encodeHex(root),
      signature: `0x${encodeHex(signature)}`,
    },
  ]
}

/** Signs heads, has the chain mine their anchors, and gives them as confirmed. */
export async function anchorHeads(
  notary: TestNotary,
  heads: readonly { readonly size: number; readonly root: Uint8Array }[],
  anchoring: Anchoring,
): Promise<readonly BuiltHead[]> {
  const built: BuiltHead[] = []
  for (const head of heads) {
    const signature = notary.account.sign(treeHeadDigest(notary, head))
    const anchor = await sendAnchor({ ...head, signature }, anchoring)
    built.push({ ...head, signature, createdAt: Math.floor(Date.now() / 1000), anchor })
  }
  return built
}

/** Attests heads over the newest block. */
export async function attestHeads(
  notary: TestNotary,
  heads: readonly { readonly size: number; readonly root: Uint8Array }[],
  { chain }: Anchoring,
): Promise<readonly HeadAttestation[]> {
  const configuration = digestBootConfiguration(notary.bootConfiguration)
  const attestations: HeadAttestation[] = []
  for (const head of heads) {
    const block =
      chain === null
        ? { number: '0x1', hash: `0x${'11'.repeat(32)}` }
        : ((await chain.rpc.call('eth_getBlockByNumber', ['latest', false])) as {
            number: string
            hash: string
          })
    const userData = headAttestationUserData({
      configuration,
      notary: notary.account.notary,
      ...head,
    })
    const document = await attest(notary, userData, decodeHex(block.hash))
    attestations.push({
      size: head.size,
      root: encodeHex(head.root),
      block_number: Number(block.number),
      block_hash: block.hash,
      created_at: Math.floor(decodeAttestationPayload(document).timestampMs / 1000),
      document: document.toString('base64'),
    })
  }
  return attestations
}

async function attest(
  notary: TestNotary,
  userData: Uint8Array,
  nonce: Uint8Array | null,
): Promise<Buffer> {
  return Buffer.from(
    await notary.nsm.attest({ publicKey: notary.account.publicKey, userData, nonce }),
  )
}

function storedRecord(
  { request, response, receipt, signature }: Sealed,
  log: Pick<BuiltLog, 'notary' | 'heads' | 'reference' | 'document'>,
): JsonObject {
  const head = log.heads.find(({ size }) => size > receipt.index)
  if (head === undefined) throw new Error(`no head covers leaf ${receipt.index}`)
  return {
    id: '00000000-0000-7000-8000-000000000000',
    request,
    response,
    hash: receipt.hash,
    public_key: `0x${encodeHex(log.notary.account.publicKey)}`,
    signature: `0x${encodeHex(signature)}`,
    tx_hash: head.anchor.tx_hash,
    attestation: log.document,
    receipt,
    created_at: Math.floor(receipt.finished_at / 1000),
    log: {
      size: head.size,
      root: encodeHex(head.root),
      signature: `0x${encodeHex(head.signature)}`,
      path: log.reference.path(receipt.index, head.size).map(encodeHex),
      chain_id: log.notary.chainId,
      contract: log.notary.contract,
    },
  }
}

async function sendAnchor(
  head: { readonly size: number; readonly root: Uint8Array; readonly signature: Uint8Array },
  anchoring: Anchoring,
): Promise<BuiltHead['anchor']> {
  const { chain } = anchoring
  if (chain === null)
    return {
      tx_hash: `0x${createHash('sha256').update(head.root).digest('hex')}`,
      state: 'confirmed',
      block_number: head.size,
      block_hash: `0x${'22'.repeat(32)}`,
    }
  const { raw, hash } = signAnchorTransaction({
    ...chain,
    head,
    nonce: anchoring.nonce++,
    fees: TEST_FEES,
  })
  await chain.rpc.call('eth_sendRawTransaction', [raw])
  for (;;) {
    const receipt = (await chain.rpc.call('eth_getTransactionReceipt', [
      hash,
    ])) as ChainReceipt | null
    if (receipt === null) await new Promise((resolve) => setTimeout(resolve, 5))
    else
      return {
        tx_hash: hash,
        state: 'confirmed',
        block_number: Number(receipt.blockNumber),
        block_hash: receipt.blockHash,
      }
  }
}

type ChainReceipt = { readonly blockNumber: string; readonly blockHash: string }
