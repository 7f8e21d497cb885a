import type { KeptAnswer } from '#attestation/compare-exchange.ts'
import type { EvidenceBundle } from '#attestation/evidence/bundle.ts'
import { saveEvidence, writeEvidence } from '#attestation/evidence/create-evidence.ts'
import type { JsonObject } from '#attestation/json/value.ts'
import type { Receipt } from '#attestation/receipt.ts'
import { sayVerdict } from '#attestation/report/say-verdict.ts'
import type { Unanswered } from '#attestation/unanswered.ts'
import type { AnswerCheck, CheckedAnswer } from './check-answer.ts'

/** One call with a checked answer: the request, the answer, and the proof. */
export type Proof = {
  /** As the answer states it: 64 hex digits. */
  readonly hash: string
  /** The enclave's account: 0x, lower case. */
  readonly notary: string
  /** The transaction that anchors the completion, as the gateway states it. */
  readonly txHash: string
  readonly receipt: Receipt
  readonly checks: readonly AnswerCheck[]
  readonly checkedAt: Date
  /** Requests of this call for which nothing proves what was made. */
  readonly unanswered: readonly Unanswered[]
  /** The body as it was sent, with its nonce. */
  readonly request: JsonObject
  readonly answer: KeptAnswer
  /** The evidence, without its anchor. */
  readonly evidence: EvidenceBundle
  /** Returns the evidence as one line: a file for `affidavit verify`, and for `complete`. */
  save(): string
  /** Returns the verdict and the checks, one per line. */
  toString(): string
}

export function createProof(
  { hash, notary, txHash, receipt, checks, unanswered }: CheckedAnswer,
  kept: Pick<Proof, 'request' | 'answer' | 'checkedAt'>,
): Proof {
  let made: EvidenceBundle | null = null
  const evidence = () => {
    made ??= saveEvidence(kept, { configuration: notary.configuration, unanswered })
    return made
  }
  return {
    hash,
    notary: notary.notary,
    txHash,
    receipt,
    checks,
    unanswered,
    ...kept,
    get evidence() {
      return evidence()
    },
    save: () => writeEvidence(evidence()),
    toString: () =>
      `${sayVerdict('incomplete', { failed: [], open: openIn(checks) })}\n${printChecks(checks)}`,
  }
}

/** Names the checks that were not made. These include at least `anchor`. */
function openIn(checks: readonly AnswerCheck[]): readonly string[] {
  return checks.filter(({ outcome }) => outcome === 'not checked').map(({ name }) => name)
}

const OUTCOME_WIDTH = 'not checked'.length

/** Text from the gateway is escaped. */
function printChecks(checks: readonly { name: string; outcome: string; detail: string }[]): string {
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

/**
 * The proofs of this client's latest answers, by hash. Above the maximum, the oldest proof is
 * removed.
 */
export type Proofs = Iterable<Proof> & {
  readonly size: number
  /** `hash`: 64 hex digits, with or without 0x. */
  get(hash: string): Proof | undefined
  /**
   * Returns the proof of an answer from `fetch`. It exists after the answer's body was read to its
   * end.
   */
  of(answer: Response): Proof | undefined
  readonly latest: Proof | undefined
  delete(hash: string): boolean
  clear(): void
}

/** `hash` is undefined for an unchecked answer, which has no proof. */
function keyOf(hash: string | undefined): string {
  return String(hash).replace(/^0x/, '').toLowerCase()
}

/** Keeps the newest `max` proofs. */
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
