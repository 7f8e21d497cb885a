import type { KeptAnswer } from '../attestation/compare-exchange.ts'
import type { JsonObject } from '../attestation/json/value.ts'
import type { Receipt } from '../attestation/receipt.ts'
import { sayVerdict } from '../attestation/report/say-verdict.ts'
import { writeSavedProof } from '../attestation/saved-proof.ts'
import type { AnswerCheck, CheckedAnswer } from './check-answer.ts'

/** One call whose answer was checked: what was asked, what was said, and why to believe it. */
export type Proof = {
  /** The completion's hash, which its answer carries too: 64 hex digits. */
  readonly hash: string
  /** The enclave's signing account: 0x, lower case. */
  readonly notary: string
  /** The transaction that the gateway says anchors it. */
  readonly txHash: string
  readonly receipt: Receipt
  /** Every check, in its order, with what was found. */
  readonly checks: readonly AnswerCheck[]
  readonly checkedAt: Date
  /** The body as it was sent, with its nonce. */
  readonly request: JsonObject
  readonly answer: KeptAnswer
  /**
   * The text of a file that `affidavit verify` takes: without boot configuration and anchor, which
   * `anchored` adds.
   */
  save(): string
  /** The verdict, and the checks, one to a line. */
  toString(): string
}

/** Gives what is kept of a call whose answer was checked. */
export function createProof(
  { hash, notary, txHash, receipt, checks }: CheckedAnswer,
  kept: { readonly request: JsonObject; readonly answer: KeptAnswer; readonly checkedAt: Date },
): Proof {
  const { request, answer } = kept
  return {
    hash,
    notary: notary.notary,
    txHash,
    receipt,
    checks,
    ...kept,
    save: () => writeSavedProof({ request, answer }),
    toString: () =>
      `${sayVerdict('consistent', { failed: [], open: openIn(checks) })}\n${printChecks(checks)}`,
  }
}

/** What is left open of an answer that was taken: its anchor, at least. */
function openIn(checks: readonly AnswerCheck[]): readonly string[] {
  return checks.filter(({ outcome }) => outcome === 'not checked').map(({ name }) => name)
}

const OUTCOME_WIDTH = 'not checked'.length

/** Checks for people, one to a line. Texts of the gateway's are escaped. */
export function printChecks(
  checks: readonly { name: string; outcome: string; detail: string }[],
): string {
  const width = Math.max(...checks.map(({ name }) => name.length))
  return checks
    .map(
      ({ name, outcome, detail }) =>
        `${outcome.padEnd(OUTCOME_WIDTH)}  ${name.padEnd(width)}  ${escapeControls(detail)}`,
    )
    .join('\n')
}

function escapeControls(text: string): string {
  return text.replaceAll(
    /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,
    (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`,
  )
}

/** The proofs of this client's latest answers, by hash. The oldest goes when there are too many. */
export type Proofs = Iterable<Proof> & {
  readonly size: number
  /** The proof of a completion's hash (64 hex digits, with or without 0x). */
  get(hash: string): Proof | undefined
  /** The proof of an answer of `fetch`, once its body was read to its end. */
  of(answer: Response): Proof | undefined
  /** The newest one that is there. */
  readonly latest: Proof | undefined
  /** Forgets one, or all. */
  delete(hash: string): boolean
  clear(): void
}

/** An answer that was not checked has no hash, and so no proof. */
function keyOf(hash: string | undefined): string {
  return String(hash).replace(/^0x/, '').toLowerCase()
}

/** Keeps up to `max` proofs; `add` takes in another, of an answer that `bind` names. */
export function createProofs(max: number): {
  readonly proofs: Proofs
  add(proof: Proof): void
  bind(answer: Response, proof: Proof): void
} {
  const kept = new Map<string, Proof>()
  const bound = new WeakMap<Response, Proof>()
  return {
    proofs: {
      get size() {
        return kept.size
      },
      get: (hash) => kept.get(keyOf(hash)),
      of: (answer) => bound.get(answer),
      get latest() {
        return [...kept.values()].at(-1)
      },
      delete: (hash) => kept.delete(keyOf(hash)),
      clear: () => kept.clear(),
      [Symbol.iterator]: () => kept.values(),
    },
    bind: (answer, proof) => void bound.set(answer, proof),
    add(proof) {
      kept.delete(proof.hash)
      kept.set(proof.hash, proof)
      for (const oldest of kept.keys()) {
        if (kept.size <= max) break
        kept.delete(oldest)
      }
    },
  }
}
