import { completeRecord, type KeptExchange } from '../compare-exchange.ts'
import { parseEvidenceBundle } from '../evidence/bundle.ts'
import type { BundleReport } from '../evidence/bundle-checks.ts'
import { namedBlocksOf } from '../evidence/check-provider.ts'
import {
  type AskChain,
  type BundlePolicy,
  type NamedBlocks,
  NO_BLOCKS,
} from '../evidence/policy.ts'
import { isRefused } from '../evidence/verdict.ts'
import { verifyBundle } from '../evidence/verify-bundle.ts'
import { attempt } from '../finding.ts'
import { isJsonObject, type JsonObject, memberOf } from '../json/value.ts'
import type { AttestationVerifier } from '../nitro/verify-attestation.ts'
import { type ComparedExchange, compareKept } from './compare-kept.ts'
import { NOTHING_SHOWN, type ShownExchange } from './shown-exchange.ts'

export type BundleJudgement = {
  /** The verdict of the report, or `invalid` if the evidence belongs to another exchange. */
  readonly verdict: BundleReport['verdict']
  /** Required checks that were not made: the bundle and the kept exchange lack data. */
  readonly open: BundleReport['open']
  /** The report on the bundle alone. */
  readonly report: BundleReport
  readonly comparison: ComparedExchange['checks']
  /** The comparisons that failed. If any failed, the evidence belongs to another exchange. */
  readonly differences: readonly string[]
  /** Empty if the bundle is invalid or not accepted. */
  readonly exchange: ShownExchange
}

/**
 * Checks a bundle, and compares it with the kept exchange. The kept request or answer is used for a
 * missing part with the same hash. Throws the errors of
 * `askChain`, but never because of the bundle.
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
  const record = memberOf(given, 'record')
  const bundle = isJsonObject(record) ? { ...given, record: completeRecord(record, kept) } : given
  const chain = askChain === null ? null : await askChain(await blocksOf(bundle))
  const report = await verifyBundle(bundle, policy, {
    attestations: verifier,
    ...(chain === null ? {} : { chain }),
  })
  const { checks, shown } = compareKept(isJsonObject(record) ? record : {}, kept)
  const differences = checks.filter(({ outcome }) => outcome === 'failed').map(({ name }) => name)
  const isAnswered = checks.some(
    ({ name, outcome }) => name === 'answer given' && outcome === 'passed',
  )
  // Chunks without usage lack a part of the response, but the receipt has the hash of these chunks.
  const open = report.open.filter((name) => !(isAnswered && name === 'response hash'))
  const held = report.verdict === 'incomplete' && open.length === 0 ? 'verified' : report.verdict
  return {
    verdict: differences.length > 0 ? 'invalid' : held,
    open,
    report,
    comparison: checks,
    differences,
    exchange: isRefused(report.verdict) ? NOTHING_SHOWN : shown,
  }
}

/** Other checks report a bundle that names no block, or that has another form. */
async function blocksOf(bundle: JsonObject): Promise<NamedBlocks> {
  const parsed = attempt(() => parseEvidenceBundle(bundle))
  return 'value' in parsed ? await namedBlocksOf(parsed.value) : NO_BLOCKS
}
