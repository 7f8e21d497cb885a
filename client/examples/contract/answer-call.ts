import {
  canonicalizeJson,
  hashCompletion,
  type Json,
  type JsonObject,
  parseReceipt,
} from '#attestation/index.ts' // in your project: from 'affidavit/attestation'

/** The arguments of `AttestedAnswers.answer`, for any library that encodes calls (ethers, viem). */
export type AnswerCall = readonly [
  evidence: {
    readonly notary: string
    readonly receipt: Uint8Array
    readonly index: number
    readonly path: readonly string[]
    readonly outcomeAt: number
    readonly hashesAt: number
  },
  requestHash: string,
  responseHash: string,
]

/**
 * Returns the hash (0x) by which AttestedAnswers identifies this request. Add your own demands to
 * the request, `affidavit: { nonce, credential: 'operator' }`. Without a nonce, another caller may
 * already have sent an equal request. Without `credential`, the client adds it, which changes the
 * hash.
 */
export function hashQuestion(request: JsonObject): string {
  return `0x${hashCompletion({ request, response: {} }).requestHash}`
}

/**
 * Returns the arguments that send a completion to the contract. `receipt` is from the completion's
 * proof, record or bundle. `path` leads from the receipt's leaf to the notary's newest anchored
 * head, hex without 0x: `GET /v1/log/{notary}/inclusion?index=…&size=…` returns the path for a head
 * of `size`. Throws FormatError for an invalid receipt.
 */
export function encodeAnswer({
  notary,
  receipt: value,
  path,
}: {
  readonly notary: string
  readonly receipt: Json
  readonly path: readonly string[]
}): AnswerCall {
  const receipt = parseReceipt(value)
  const text = canonicalizeJson(receipt)
  // Offsets count bytes, as in the contract: names in a receipt may have non-ASCII characters.
  const offsetOf = (part: string) =>
    new TextEncoder().encode(text.slice(0, text.indexOf(part))).length
  return [
    {
      notary,
      receipt: new TextEncoder().encode(text),
      index: receipt.index,
      path: path.map((hash) => `0x${hash}`),
      outcomeAt: offsetOf(',"outcome":'),
      hashesAt: offsetOf(',"request_hash":'),
    },
    `0x${receipt.request_hash}`,
    `0x${receipt.response_hash}`,
  ]
}
