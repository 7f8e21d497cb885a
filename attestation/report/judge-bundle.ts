import { completeRecord, type KeptExchange } from '../compare-exchange.ts'
import { parseEvidenceBundle } from '../evidence/bundle.ts'
import type { BundleReport } from '../evidence/bundle-report.ts'
import type { BundlePolicy, ChainFacts } from '../evidence/policy.ts'
import { verifyBundle } from '../evidence/verify-bundle.ts'
import { attempt } from '../finding.ts'
import { isJsonObject, type JsonObject, memberOf } from '../json/value.ts'
import type { AttestationVerifier } from '../nitro/verify-attestation.ts'
import { type ComparedExchange, compareKept } from './describe-exchange.ts'
import { NOTHING_SHOWN, type ShownExchange } from './shown-exchange.ts'

/** What was found of a bundle, and of what its caller kept beside it. */
export type BundleJudgement = {
  /**
   * The report's; but `invalid` where the evidence is not of the request or answer that was given.
   */
  readonly verdict: BundleReport['verdict']
  /** The needed checks that were not made, and that what its caller kept does not make up for. */
  readonly open: BundleReport['open']
  /** Of the bundle by itself. */
  readonly report: BundleReport
  readonly comparison: ComparedExchange['checks']
  /** The comparisons that failed: then the evidence, good or not, is of something else. */
  readonly differences: readonly string[]
  /** What was asked and said; of a bundle that does not hold, nothing. */
  readonly exchange: ShownExchange
}

/**
 * Checks a bundle, and compares it with what its caller kept; a part that it left out is taken from
 * there, where it is the same. `askChain` is called for a block's number that the bundle claims, or
 * null; what it throws is thrown. Never throws for what the bundle says.
 */
export async function judgeBundle(
  given: JsonObject,
  demands: {
    readonly policy: BundlePolicy
    readonly verifier: AttestationVerifier
    readonly kept: KeptExchange
    readonly askChain: ((blockNumber: number | null) => Promise<ChainFacts>) | null
  },
): Promise<BundleJudgement> {
  const { policy, verifier, kept, askChain } = demands
  const record = memberOf(given, 'record')
  const bundle = isJsonObject(record) ? { ...given, record: completeRecord(record, kept) } : given
  const chain = askChain === null ? null : await askChain(blockNumberOf(bundle))
  const report = await verifyBundle(bundle, policy, {
    attestations: verifier,
    ...(chain === null ? {} : { chain }),
  })
  const { checks, shown } = compareKept(isJsonObject(record) ? record : {}, kept)
  const differences = checks.filter(({ outcome }) => outcome === 'failed').map(({ name }) => name)
  const isAnswered = checks.some(
    ({ name, outcome }) => name === 'answer given' && outcome === 'passed',
  )
  // Chunks without usage do not make up the response, but the receipt has the hash of the chunks.
  const open = report.open.filter((name) => !(isAnswered && name === 'response hash'))
  const held = report.verdict === 'consistent' && open.length === 0 ? 'verified' : report.verdict
  return {
    verdict: differences.length > 0 ? 'invalid' : held,
    open,
    report,
    comparison: checks,
    differences,
    exchange: report.verdict === 'invalid' ? NOTHING_SHOWN : shown,
  }
}

/** Null when the bundle has no block; the checks of the bundle report that. */
function blockNumberOf(bundle: JsonObject): number | null {
  const parsed = attempt(() => parseEvidenceBundle(bundle))
  return 'value' in parsed ? (parsed.value.block?.number ?? null) : null
}
