import {
  canonicalizeJson,
  hashCompletion,
  type Json,
  type JsonObject,
  parseReceipt,
} from '../../../attestation/index.ts' // installed: from 'affidavit/attestation'

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
 * The hash (0x) by which AttestedAnswers asks this request. Give the request a nonce of your own,
 * `affidavit: { nonce }`: without a nonce, another caller may have asked a notary the same before.
 */
export function hashQuestion(request: JsonObject): string {
  return `0x${hashCompletion({ request, response: {} }).requestHash}`
}

/**
 * Gives the call that brings a completion. `receipt`: of its proof, record or bundle. `path`: from
 * its leaf to the notary's newest anchored head, hex without 0x, as
 * `GET /v1/log/{notary}/inclusion?index=…&size=…` gives it for that head's size. Throws FormatError
 * for a receipt that is not valid.
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
  // Offsets count bytes, as the contract does: names in a receipt may be beyond ASCII.
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
