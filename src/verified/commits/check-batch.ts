import { hash } from 'node:crypto'
import { addressOf } from '#attestation/account.ts'
import { decodeBase64, decodeHex, encodeHex, encodeUtf8, equalBytes } from '#attestation/bytes.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { Json } from '#attestation/json/value.ts'
import { appendLeaves, type Edge, type LogNode, rootOf } from '#attestation/merkle/edge.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import { parseReceipt, type Receipt } from '#attestation/receipt.ts'
import { type LogDomain, verifyTreeHead } from '#attestation/tree-head.ts'
import type { SignedHead } from '#audit/known-heads.ts'
import type { Identity, PullReply, SealedCompletion } from '#enclave/protocol/enclave-api.ts'
import { recoverPoint } from '#enclave/protocol/recover-point.ts'

/**
 * The batch is not stored. It has a fault, or the database cannot store its texts unchanged
 * (BatchFault).
 */
export class BatchRefused extends Error {
  override readonly name = 'BatchRefused'
  readonly code: BatchFault

  constructor(code: BatchFault, message: string) {
    super(message)
    this.code = code
  }
}

export type BatchFault =
  | 'wrong_identity' //       the notary has another public key, or another chain or contract
  | 'wrong_index' //          indexes do not continue the stored log
  | 'unstorable_text' //      U+0000 or a lone surrogate in a canonical text
  | 'invalid_receipt' //      not a receipt in canonical form
  | 'wrong_hash' //           request, response and receipt do not belong together
  | 'invalid_signature' // a completion's signature is not 65 hex bytes (readers check its signer)
  | 'invalid_document' // a document is missing, or has another digest
  | 'invalid_head' //         no head, or not of the right size
  | 'wrong_root' //           the head's root does not match the leaves
  | 'wrong_head_signature' // the notary did not sign the head

/** The account that signs a log's heads, and the chain and contract for which it signs. */
export type Notary = {
  /** 0x, lower case. It is the id of the log. */
  readonly address: string
  /** 0x + 65 bytes. */
  readonly publicKey: string
  readonly domain: LogDomain
}

/** SHA-256 in hex, and the bytes in standard base64, as the enclave sends them. */
export type GivenDocument = { readonly digest: string; readonly base64: string }

type CheckedBatch = {
  readonly completions: readonly CheckedCompletion[]
  /** Attestation documents by digest. */
  readonly documents: ReadonlyMap<string, Uint8Array>
  readonly head: SignedHead
  /** The edge of the log after the batch. */
  readonly edge: Edge
  readonly nodes: readonly LogNode[]
}

export type CheckedCompletion = {
  readonly sealed: SealedCompletion
  readonly receipt: Receipt
  readonly document: GivenDocument
}

/** Throws BatchRefused `wrong_identity`. */
export function checkIdentity(
  identity: Pick<Identity, 'notary' | 'public_key' | 'boot_configuration'>,
  domain: LogDomain,
): Notary {
  const { notary: address, public_key: publicKey, boot_configuration: boot } = identity
  if (addressOf(decodeHex(publicKey)) !== address)
    throw refused('wrong_identity', 'expected the notary to be the address of its public key')
  if (boot.chain_id !== domain.chainId || boot.contract !== domain.contract)
    throw refused(
      'wrong_identity',
      `expected an enclave for contract ${domain.contract} on chain ${domain.chainId}, got ` +
        `${boot.contract} on ${boot.chain_id}`,
    )
  return { address, publicKey, domain }
}

/**
 * Checks that a reply continues the stored log: its indexes, receipts, hashes, documents, tree and
 * head. The enclave does not send the document `known` again. Throws BatchRefused. Does NOT verify
 * the completions' signatures or the documents: the readers of records verify these. The signed
 * head shows that the enclave made the completions.
 */
export function checkBatch(
  reply: PullReply,
  expected: { readonly notary: Notary; readonly edge: Edge; readonly known: GivenDocument | null },
): CheckedBatch {
  const { notary, edge: before, known } = expected
  const documents = checkDocuments(reply.documents)
  const completions = reply.completions.map((sealed, offset): CheckedCompletion => {
    const receipt = checkCompletion(sealed, before.size + offset)
    const base64 =
      sealed.document === known?.digest ? known.base64 : reply.documents[sealed.document]
    if (base64 === undefined)
      throw refused('invalid_document', `expected the document of completion ${sealed.index}`)
    return { sealed, receipt, document: { digest: sealed.document, base64 } }
  })
  const leaves = reply.completions.map((sealed) => hashLeaf(encodeUtf8(sealed.receipt)))
  const { edge, nodes } = appendLeaves(before, leaves)
  return { completions, documents, head: checkHead(reply.head, { notary, edge }), edge, nodes }
}

const SIGNATURE_FORM = /^0x[0-9a-f]{130}$/
const HASH_FORM = /^[0-9a-f]{64}$/

function checkCompletion(sealed: SealedCompletion, index: number): Receipt {
  if (sealed.index !== index)
    throw refused('wrong_index', `expected completion ${index}, got ${sealed.index}`)
  const { request, response } = sealed
  const texts = [request ?? '', response ?? '', sealed.receipt]
  if (!texts.every((text) => text.isWellFormed() && !text.includes('\0')))
    throw refused(
      'unstorable_text',
      `expected texts without U+0000 and lone surrogates in completion ${index}`,
    )
  const receipt = readReceipt(sealed.receipt, index)
  // The batch has no texts of an encrypted call. Only the receipt has their hashes.
  const isEncrypted = receipt.encrypted
  const isHashed = (text: string | null, expected: string) =>
    text === null ? isEncrypted : !isEncrypted && hash('sha256', text) === expected
  const hashes = receipt.request_hash + receipt.response_hash
  const isOneCompletion =
    receipt.index === index &&
    isHashed(request, receipt.request_hash) &&
    isHashed(response, receipt.response_hash) &&
    receipt.hash === hash('sha256', Buffer.from(hashes, 'hex'))
  if (!isOneCompletion)
    throw refused('wrong_hash', `expected the receipt of completion ${index} to be its own`)
  if (!SIGNATURE_FORM.test(sealed.signature))
    throw refused(
      'invalid_signature',
      `expected 0x and 65 bytes of hex as signature of completion ${index}`,
    )
  return receipt
}

function readReceipt(text: string, index: number): Receipt {
  try {
    const receipt = parseReceipt(JSON.parse(text))
    // Readers get this text inside JSON, so it must be the canonical form of its value.
    if (canonicalizeJson(receipt as unknown as Json) === text) return receipt
  } catch {
    // The parser's message may repeat its input, so it is left out.
  }
  throw refused('invalid_receipt', `expected a canonical receipt in completion ${index}`)
}

function checkDocuments(given: PullReply['documents']): ReadonlyMap<string, Uint8Array> {
  const documents = new Map<string, Uint8Array>()
  for (const [digest, base64] of Object.entries(given)) {
    const document = decodeDocument(base64)
    if (document === null || !HASH_FORM.test(digest) || hash('sha256', document) !== digest)
      throw refused('invalid_document', 'expected each document under its SHA-256')
    documents.set(digest, document)
  }
  return documents
}

function decodeDocument(base64: string): Uint8Array | null {
  try {
    return decodeBase64(base64)
  } catch {
    return null
  }
}

function checkHead(
  given: PullReply['head'],
  { notary, edge }: { readonly notary: Notary; readonly edge: Edge },
): CheckedBatch['head'] {
  const isFormed =
    given !== null && HASH_FORM.test(given.root) && SIGNATURE_FORM.test(given.signature)
  if (!isFormed || given.size !== edge.size)
    throw refused(
      'invalid_head',
      `expected a signed tree head of size ${edge.size}, got ${given?.size ?? 'none'}`,
    )
  const root = rootOf(edge)
  if (!equalBytes(root, decodeHex(given.root)))
    throw refused(
      'wrong_root',
      `expected root ${encodeHex(root)} at size ${edge.size}, got ${given.root}`,
    )
  const head = { size: edge.size, root, signature: decodeHex(given.signature) }
  const signed = { domain: notary.domain, head, signature: head.signature, notary: notary.address }
  try {
    verifyTreeHead(signed, recoverPoint)
  } catch {
    throw refused(
      'wrong_head_signature',
      `expected the signature of ${notary.address} on the head of size ${edge.size}`,
    )
  }
  return head
}

function refused(code: BatchFault, message: string): BatchRefused {
  return new BatchRefused(code, message)
}
