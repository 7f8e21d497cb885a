import { encodeHex, encodeUtf8, sha256 } from '#attestation/bytes.ts'
import type { DialectName } from '#attestation/dialects/dialect-names.ts'
import { DIALECTS } from '#attestation/dialects/dialects.ts'
import { canonicalizeJson } from '#attestation/json/canonical.ts'
import { parseExactJson } from '#attestation/json/parse-strict.ts'
import { type Json, type JsonObject, memberAt } from '#attestation/json/value.ts'
import type { SignedRefusal } from '#attestation/refusal.ts'
import type { Unanswered } from '#attestation/unanswered.ts'
import { verifyRefusal } from '#attestation/verify-refusal.ts'

/** How a call was sent. All its requests have the same nonce, and each names one enclave. */
export type CallSends = {
  /** 16 to 64 bytes in hex. */
  readonly nonce: string
  /** How often each notary's enclave may have got the call, in the order of the last requests. */
  readonly times: Map<string, number>
  /** How often the gateway stated that the notary's enclave did not get the call. */
  readonly untaken: Map<string, number>
  /** By notary: the attempts for which the enclave signed that it made nothing. */
  readonly unmade: Map<string, Set<number>>
}

export const NONCE_BYTES = 32

/** A call that failed keeps its nonce for this long, milliseconds: SDKs and agents repeat it. */
const REPEAT_MS = 10 * 60_000
/** Maximum number of calls that are remembered. */
const CALLS_MAX = 1_000

export function newSends(nonce = randomHex(NONCE_BYTES)): CallSends {
  return { nonce, times: new Map(), untaken: new Map(), unmade: new Map() }
}

/** `isTaken`: false if the gateway states that the enclave did not get the call. */
export function countSend(sends: CallSends, notary: string, isTaken: boolean): void {
  const { times, untaken } = sends
  const sent = times.get(notary) ?? 0
  times.delete(notary)
  times.set(notary, isTaken ? sent + 1 : sent)
  if (!isTaken) untaken.set(notary, (untaken.get(notary) ?? 0) + 1)
}

/** Null if `body` has no refusal that the named enclave signed for this request. */
export function signedRefusalIn(
  body: Uint8Array,
  call: {
    readonly request: JsonObject
    readonly dialect: DialectName
    readonly notary: string
  },
): SignedRefusal | null {
  const { request, dialect, notary } = call
  try {
    const value = memberAt(parseExactJson(body), 'error', 'refusal') ?? null
    const text = canonicalizeJson(DIALECTS[dialect].hashedRequest(request))
    return verifyRefusal(value, { requestHash: encodeHex(sha256(encodeUtf8(text))), notary })
  } catch {
    return null
  }
}

export function countUnmade({ unmade }: CallSends, { notary, attempt }: SignedRefusal): void {
  unmade.set(notary, (unmade.get(notary) ?? new Set()).add(attempt))
}

/** The notary of the last request. Null before the first. */
export function latestNotary({ times }: CallSends): string | null {
  return [...times.keys()].at(-1) ?? null
}

/**
 * Returns the requests that stay without a proof when `notary` signed an answer as its attempt
 * number `attempt`, or when there is no answer. An enclave's count shows which requests reached it.
 * Another enclave may have made the call at any later time, also after a refusal.
 */
export function unansweredIn(
  { times, untaken, unmade }: CallSends,
  answered: { readonly notary: string; readonly attempt: number } | null,
): readonly Unanswered[] {
  return [...times].flatMap(([notary, taken]) => {
    const sent = taken + (untaken.get(notary) ?? 0)
    const refused = unmade.get(notary) ?? new Set<number>()
    if (notary !== answered?.notary) {
      const left = answered === null ? sent - refused.size : sent
      return left > 0 ? [{ notary, times: left }] : []
    }
    const earlier = Array.from({ length: answered.attempt - 1 }, (_, at) => at + 1)
    const left = earlier.filter((one) => !refused.has(one)).length
    return left > 0 ? [{ notary, times: left }] : []
  })
}

/**
 * The sends of calls that may be repeated: of each call with an `Idempotency-Key`, and of each call
 * that ended without a proven answer.
 */
export type RepeatedCalls = {
  /** `call` has all that is hashed, but the nonce and the notary. Null: it is a new call. */
  take(call: Json): CallSends | null
  /** `isKeyed`: the call has an `Idempotency-Key`, so later repeats belong to it too. */
  keep(call: Json, sends: CallSends, options: { readonly isKeyed: boolean }): void
}

/** `now` returns Unix milliseconds. */
export function createRepeatedCalls(now: () => number): RepeatedCalls {
  type Kept = { readonly sends: CallSends; readonly endMs: number; readonly isKeyed: boolean }
  const kept = new Map<string, readonly Kept[]>()
  const nameOf = (call: Json) => encodeHex(sha256(encodeUtf8(canonicalizeJson(call))))
  // The clock may be set back.
  const isUsable = ({ endMs, isKeyed }: Kept) =>
    isKeyed || (endMs > now() && endMs - now() <= REPEAT_MS)
  return {
    take(call) {
      const name = nameOf(call)
      const [first, ...rest] = (kept.get(name) ?? []).filter(isUsable)
      if (first === undefined) return null
      if (!first.isKeyed) {
        // Two calls with the same body that run at once are not the same call.
        if (rest.length > 0) kept.set(name, rest)
        else kept.delete(name)
      }
      return first.sends
    },
    keep(call, sends, { isKeyed }) {
      const name = nameOf(call)
      const endMs = now() + REPEAT_MS
      const others = (kept.get(name) ?? []).filter((one) => one.sends !== sends)
      kept.delete(name)
      kept.set(name, [...others, { sends, endMs, isKeyed }].slice(-CALLS_MAX))
      for (const oldest of kept.keys()) {
        if (kept.size <= CALLS_MAX) break
        kept.delete(oldest)
      }
    },
  }
}

export function randomHex(bytes: number): string {
  return encodeHex(crypto.getRandomValues(new Uint8Array(bytes)))
}
