import { isJsonObject, type Json, memberOf } from './json/value.ts'
import { isStatedText } from './stated-text.ts'

/** Longest reason that a gateway may state, code points. */
export const ERASURE_REASON_MAX = 500

/** Who may ask for an erasure. `retention`: a rule about how long content is kept. */
const ERASURE_ORIGINS = ['operator', 'account', 'retention'] as const

/**
 * A gateway's statement that it erased a request and its response. Not signed. States only that the
 * gateway no longer returns them.
 */
export type ErasureStatement = {
  /** Unix seconds. */
  readonly at: number
  readonly by: (typeof ERASURE_ORIGINS)[number]
  readonly reason: string
}

/** Reads the statement in attacker-controlled `json`. Null if it has another form. */
export function readErasure(json: Json | undefined): ErasureStatement | null {
  if (json === undefined || !isJsonObject(json) || Object.keys(json).length !== 3) return null
  const [at, by, reason] = [memberOf(json, 'at'), memberOf(json, 'by'), memberOf(json, 'reason')]
  const origin = ERASURE_ORIGINS.find((one) => one === by)
  if (typeof at !== 'number' || !Number.isSafeInteger(at) || at < 0) return null
  if (typeof reason !== 'string' || !isErasureReason(reason)) return null
  return origin === undefined ? null : { at, by: origin, reason }
}

/** 1 to ERASURE_REASON_MAX code points, no control or format characters. */
export function isErasureReason(text: string): boolean {
  return isStatedText(text, ERASURE_REASON_MAX)
}

/** Reasons why a gateway cannot return content that it stores. */
const WITHHOLDING_CODES = ['content_key_missing', 'content_unreadable'] as const

/**
 * Why a stored record with `redacted` lacks its request and response. The record states the reason:
 * the gateway erased them, or cannot decrypt them.
 */
export type StatedAbsence =
  | ({ readonly kind: 'erased' } & ErasureStatement)
  | { readonly kind: 'withheld'; readonly code: (typeof WITHHOLDING_CODES)[number] }

/** Reads why an attacker-controlled record lacks content. Null if it states no reason. */
export function statedAbsence(record: Json): StatedAbsence | null {
  if (!isJsonObject(record) || memberOf(record, 'redacted') !== true) return null
  const erased = readErasure(memberOf(record, 'erased'))
  if (erased !== null) return { kind: 'erased', ...erased }
  const withheld = memberOf(record, 'withheld')
  const code = withheld !== undefined && isJsonObject(withheld) ? memberOf(withheld, 'code') : null
  const known = WITHHOLDING_CODES.find((one) => one === code)
  return known === undefined ? null : { kind: 'withheld', code: known }
}
