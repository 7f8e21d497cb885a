import { createHash } from 'node:crypto'
import { completionDigest } from '../../attestation/account.ts'
import { decodeHex, encodeHex, encodeUtf8 } from '../../attestation/bytes.ts'
import { hashResponse } from '../../attestation/completion-hash.ts'
import { canonicalizeJson } from '../../attestation/json/canonical.ts'
import type { JsonObject } from '../../attestation/json/value.ts'
import { hashLeaf } from '../../attestation/merkle/hash.ts'
import type { Receipt, ReceiptV2 } from '../../attestation/receipt.ts'
import type { AttestationDocument } from '../attestation-keeper.ts'
import type { Account } from '../notary-key.ts'
import type { SealedNotice } from '../protocol/messages.ts'
import type { NotaryLog } from './notary-log.ts'

/** What the enclave knows of a completion when it is over. */
export type FinishedCompletion = {
  /** Canonical JSON text of the request without unset members. */
  readonly canonicalRequest: string
  /** SHA-256 of that text. */
  readonly requestDigest: Uint8Array
  readonly response: JsonObject
  /** hashChunks over the chunks that were given out (hex); null when it was no stream. */
  readonly streamHash: string | null
  /** How many times the log was asked for a completion of this request, this time included. */
  readonly attempt: number
  /** SHA-256 (hex) of the bytes that the provider was sent, and of the body bytes that it sent. */
  readonly forwardedHash: string
  readonly receivedHash: string
  readonly provider: Receipt['provider']
  readonly requestedModel: string
  readonly outcome: Receipt['outcome']
  readonly startedAtMs: number
  readonly finishedAtMs: number
  /** The gateway's, handed back with the completion. */
  readonly context: string
}

/**
 * Seals a completion: hashes it, signs the hash, makes its receipt and appends that to the log as
 * the next leaf. All in one go, so that indexes have no gaps and their order is the order of
 * sealing.
 */
export function sealCompletion(
  notary: {
    readonly account: Account
    readonly log: NotaryLog
    readonly document: AttestationDocument
  },
  finished: FinishedCompletion,
): SealedNotice {
  const { account, log, document } = notary
  const hashes = hashResponse(finished, sha256)
  const receipt = makeReceipt(log.size, hashes, finished)
  const receiptText = canonicalizeJson(receipt)
  const signature = account.sign(completionDigest(decodeHex(hashes.hash)))
  log.append({
    completion: {
      index: receipt.index,
      request: hashes.canonicalRequest,
      response: hashes.canonicalResponse,
      receipt: receiptText,
      signature: `0x${encodeHex(signature)}`,
      context: finished.context,
    },
    leafHash: hashLeaf(encodeUtf8(receiptText)),
    document,
  })
  return { notary: account.notary, index: receipt.index, outcome: receipt.outcome }
}

/** The native one: answers may be megabytes. */
export function sha256(data: Uint8Array): Uint8Array {
  return createHash('sha256').update(data).digest()
}

function makeReceipt(
  index: number,
  hashes: { readonly hash: string; readonly requestHash: string; readonly responseHash: string },
  finished: FinishedCompletion,
): ReceiptV2 {
  const { model } = finished.response
  return {
    version: 2,
    index,
    hash: hashes.hash,
    request_hash: hashes.requestHash,
    response_hash: hashes.responseHash,
    forwarded_hash: finished.forwardedHash,
    received_hash: finished.receivedHash,
    provider: finished.provider,
    model: {
      requested: finished.requestedModel,
      returned: typeof model === 'string' ? model : null,
    },
    outcome: finished.outcome,
    started_at: finished.startedAtMs,
    finished_at: finished.finishedAtMs,
    stream_hash: finished.streamHash,
    attempt: finished.attempt,
    encrypted: false,
  }
}
