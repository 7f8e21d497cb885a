import {
  compareExchange,
  completeRecord,
  type ExchangeCheck,
  type KeptExchange,
  keptResponseOf,
} from '../compare-exchange.ts'
import { type EvidenceBundle, parseEvidenceBundle } from '../evidence/bundle.ts'
import type { BundleReport } from '../evidence/bundle-checks.ts'
import { namedBlocksOf } from '../evidence/check-provider.ts'
import { keptEventsOf, streamIn } from '../evidence/kept-events.ts'
import { type AskChain, type BundlePolicy, NO_BLOCKS } from '../evidence/policy.ts'
import { isRefused } from '../evidence/verdict.ts'
import { verifyBundle } from '../evidence/verify-bundle.ts'
import { attempt } from '../finding.ts'
import { isJsonObject, type Json, type JsonObject, memberOf } from '../json/value.ts'
import type { AttestationVerifier } from '../nitro/verify-attestation.ts'
import { compareKept } from './compare-kept.ts'
import { describeExchange } from './describe-exchange.ts'
import { NOTHING_SHOWN, type ShownExchange } from './shown-exchange.ts'

export type BundleJudgement = {
  /** The verdict of the report, or `invalid` if the evidence belongs to another exchange. */
  readonly verdict: BundleReport['verdict']
  /** The report on the evidence, with the kept parts that belong to it. */
  readonly report: BundleReport
  readonly comparison: readonly ExchangeCheck[]
  /** The comparisons that failed. If any failed, the evidence belongs to another exchange. */
  readonly differences: readonly string[]
  /** Empty if the evidence is invalid or not accepted. */
  readonly exchange: ShownExchange
  /** The kept texts that are not those of the evidence. */
  readonly differing: ShownExchange
}

/**
 * Checks the evidence of a call, and compares it with the kept exchange. Fills a part that the
 * evidence leaves out with the kept part that has the same hash. Throws the errors of `askChain`,
 * but never because of the evidence.
 */
export async function judgeBundle(
  given: JsonObject,
  demands: {
    readonly policy: BundlePolicy
    readonly verifier: AttestationVerifier
    readonly kept: KeptExchange
    readonly askChain: AskChain | null
  },
): Promise<BundleJudgement> {
  const { policy, verifier, kept, askChain } = demands
  const comparison = compareExchange(memberOf(given, 'record') ?? null, kept)
  const bundle = withKept(given, { kept, comparison })
  const parsed = attempt(() => parseEvidenceBundle(bundle))
  const read = 'value' in parsed ? parsed.value : null
  const blocks = read === null ? NO_BLOCKS : await namedBlocksOf(read)
  const chain = askChain === null ? null : await askChain(blocks)
  const report = await verifyBundle(bundle, policy, {
    attestations: verifier,
    ...(chain === null ? {} : { chain }),
  })
  const differences = comparison
    .filter(({ outcome }) => outcome === 'failed')
    .map(({ name }) => name)
  const isShown = read !== null && !isRefused(report.verdict)
  return {
    verdict: differences.length > 0 ? 'invalid' : report.verdict,
    report,
    comparison,
    differences,
    exchange: isShown ? describeCall(read) : NOTHING_SHOWN,
    differing: isShown ? describeDiffering(read, kept, differences) : NOTHING_SHOWN,
  }
}

function describeDiffering(
  { record: { receipt } }: EvidenceBundle,
  { request, answer }: KeptExchange,
  differences: readonly string[],
): ShownExchange {
  const read = attempt(() => answer && keptResponseOf(answer, receipt.dialect))
  const response = 'value' in read ? (read.value ?? null) : null
  return describeExchange({
    dialect: receipt.dialect,
    request: differences.includes('request given') && isJsonObject(request) ? request : null,
    response: differences.includes('answer given') ? response : null,
  })
}

function withKept(
  given: JsonObject,
  {
    kept,
    comparison,
  }: { readonly kept: KeptExchange; readonly comparison: readonly ExchangeCheck[] },
): JsonObject {
  const record: Json = memberOf(given, 'record') ?? null
  if (!isJsonObject(record)) return given
  const completed = { ...given, record: completeRecord(record, kept) }
  const isOwn = comparison.some(
    ({ name, outcome }) => name === 'answer given' && outcome === 'passed',
  )
  if (!isOwn || kept.answer === undefined || Object.hasOwn(given, 'events')) return completed
  return { ...completed, ...keptEventsOf(kept.answer) }
}

function describeCall(bundle: EvidenceBundle): ShownExchange {
  const answer = streamIn(bundle)
  return compareKept({ ...bundle.record }, answer === null ? {} : { answer }).shown
}
