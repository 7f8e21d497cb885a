import { createHash } from 'node:crypto'
import { completionDigest } from '#attestation/account.ts'
import { decodeHex, encodeHex, encodeUtf8 } from '#attestation/bytes.ts'
import { hashResponse } from '#attestation/completion-hash.ts'
import { type CallHeaders, statedHeaders } from '#attestation/dialects/call-request.ts'
import type { Dialect } from '#attestation/dialects/dialects.ts'
import { answeringModel } from '#attestation/dialects/usage.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import { hashLeaf } from '#attestation/merkle/hash.ts'
import type { Receipt, ReceiptCredential } from '#attestation/receipt.ts'
import type { KeptDocument } from '../attestation-keeper.ts'
import type { NotaryAccount } from '../notary-key.ts'
import { NOTICE_RESPONSE_LENGTH_MAX, type SealedNotice } from '../protocol/enclave-api.ts'
import type { NotaryLog } from './notary-log.ts'

export type FinishedCompletion = {
  readonly dialect: Dialect
  /** The hashed headers of the call. */
  readonly headers: CallHeaders
  /** Canonical JSON text of the request (Dialect.hashedRequest). */
  readonly canonicalRequest: string
  /** SHA-256 of `canonicalRequest`. */
  readonly requestDigest: Uint8Array
  readonly response: JsonObject
  /** SHA-256 (hex) over the events that were passed on. Null without a stream. */
  readonly streamHash: string | null
  /** Number of calls of this request so far, including this call. */
  readonly attempt: number
  /** SHA-256 (hex) of the bytes sent to the provider. `receivedHash`: of the received body. */
  readonly forwardedHash: string
  readonly receivedHash: string
  readonly provider: Receipt['provider']
  readonly requestedModel: string
  readonly outcome: Receipt['outcome']
  readonly startedAtMs: number
  readonly finishedAtMs: number
  readonly credential: ReceiptCredential
  /** The gateway's data, returned to the gateway with the completion. */
  readonly context: string
  /** True if request and answer are encrypted end to end: the gateway receives neither. */
  readonly isEncrypted: boolean
  /** True if the gateway requested the completion in the notice. */
  readonly inNotice: boolean
}

export type Sealed = {
  readonly notice: SealedNotice
  /** Canonical JSON text. */
  readonly response: string
  /** JSON text, without braces, of the proof's members except tx_hash and log. */
  readonly members: string
}

/**
 * Seals a completion: hashes it, signs the hash, makes its receipt and appends the receipt to the
 * log as the next leaf. It runs without interruption, so indexes have no gaps and follow the order
 * of sealing.
 */
export function sealCompletion(
  notary: {
    readonly account: NotaryAccount
    readonly log: NotaryLog
    readonly document: KeptDocument
  },
  finished: FinishedCompletion,
): Sealed {
  const { account, log, document } = notary
  const { dialect } = finished
  const hashed = { ...finished, response: dialect.hashedResponse(finished.response) }
  const hashes = hashResponse(hashed, nativeSha256)
  const receipt = makeReceipt(log.size, hashes, finished)
  const receiptText = canonicalizeJson(receipt)
  const signature = `0x${encodeHex(account.sign(completionDigest(decodeHex(hashes.hash))))}`
  const { isEncrypted, inNotice } = finished
  log.append({
    completion: {
      index: receipt.index,
      request: isEncrypted ? null : hashes.canonicalRequest,
      response: isEncrypted ? null : hashes.canonicalResponse,
      ...(isEncrypted
        ? { usage: dialect.usageOf(finished.response), call: String(receipt.index) }
        : {}),
      receipt: receiptText,
      signature,
      context: finished.context,
    },
    leafHash: hashLeaf(encodeUtf8(receiptText)),
    document,
  })
  const publicKey = `0x${encodeHex(account.publicKey)}`
  const response = hashes.canonicalResponse
  const isShort = response.length <= NOTICE_RESPONSE_LENGTH_MAX
  const completion = { response, receipt: receiptText, signature, document: document.digest }
  return {
    notice: {
      notary: account.notary,
      index: receipt.index,
      outcome: receipt.outcome,
      ...(inNotice && isShort && !isEncrypted ? { completion } : {}),
    },
    response,
    members:
      `"hash":"${hashes.hash}","public_key":"${publicKey}","signature":"${signature}",` +
      `"attestation":"${document.base64}","receipt":${receiptText}`,
  }
}

/** Uses native code, because answers can be megabytes long. */
export function nativeSha256(data: Uint8Array): Uint8Array {
  return createHash('sha256').update(data).digest()
}

function makeReceipt(
  index: number,
  hashes: { readonly hash: string; readonly requestHash: string; readonly responseHash: string },
  finished: FinishedCompletion,
): Receipt {
  return {
    version: 1,
    index,
    hash: hashes.hash,
    request_hash: hashes.requestHash,
    response_hash: hashes.responseHash,
    forwarded_hash: finished.forwardedHash,
    received_hash: finished.receivedHash,
    provider: finished.provider,
    model: {
      requested: finished.requestedModel,
      returned: answeringModel(finished.response),
    },
    outcome: finished.outcome,
    started_at: finished.startedAtMs,
    finished_at: finished.finishedAtMs,
    stream_hash: finished.streamHash,
    attempt: finished.attempt,
    encrypted: finished.isEncrypted,
    credential: finished.credential,
    dialect: finished.dialect.name,
    headers: statedHeaders(finished.headers),
  }
}
