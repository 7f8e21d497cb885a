import { completionDigest } from '#attestation/account.ts'
import { decodeHex } from '#attestation/bytes.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { Receipt } from '#attestation/receipt.ts'
import { hashCompletion } from '#attestation/record-hash.ts'
import type { NotaryAccount } from '#enclave/notary-key.ts'

/** A completion and its receipt, signed by its notary. */
export type Sealed = {
  readonly request: JsonObject
  readonly response: JsonObject
  readonly receipt: Receipt
  readonly signature: Uint8Array
}

/** Seals an invented completion at a leaf's index. Different `salt`s give different completions. */
export function sealCompletion(
  account: NotaryAccount,
  {
    index,
    salt,
    finishedAtMs,
    demands = null,
  }: {
    readonly index: number
    readonly salt: string
    readonly finishedAtMs: number
    readonly demands?: JsonObject | null
  },
): Sealed {
  const request = {
    model: 'demo/test',
    messages: [{ role: 'user', content: `question ${index} ${salt}` }],
    ...(demands === null ? {} : { affidavit: demands }),
  }
  const response = {
    id: `chatcmpl-${index}`,
    object: 'chat.completion',
    created: 1_790_000_000,
    model: 'demo/test',
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: `answer ${index}` },
        finish_reason: 'stop',
      },
    ],
  }
  const hashes = hashCompletion({ request, response })
  const receipt: Receipt = {
    version: 1,
    index,
    hash: hashes.hash,
    request_hash: hashes.requestHash,
    response_hash: hashes.responseHash,
    forwarded_hash: 'a'.repeat(64),
    received_hash: 'b'.repeat(64),
    stream_hash: null,
    dialect: 'chat',
    headers: {},
    credential: { from: 'operator', demanded: false },
    attempt: 1,
    encrypted: false,
    provider: { name: 'demo', origin: 'http://127.0.0.1:1', tls: null },
    model: { requested: 'demo/test', returned: 'demo/test' },
    outcome: 'complete',
    started_at: finishedAtMs,
    finished_at: finishedAtMs,
  }
  return {
    request,
    response,
    receipt,
    signature: account.sign(completionDigest(decodeHex(hashes.hash))),
  }
}
