import { encodeHex } from '../../../attestation/bytes.ts'
import { completeRecord, type KeptExchange } from '../../../attestation/compare-exchange.ts'
import { parseEvidenceBundle } from '../../../attestation/evidence/bundle.ts'
import type { BundleFacts, BundleReport } from '../../../attestation/evidence/bundle-report.ts'
import type { BundlePolicy } from '../../../attestation/evidence/policy.ts'
import { verifyBundle } from '../../../attestation/evidence/verify-bundle.ts'
import { isJsonObject, type JsonObject, memberOf } from '../../../attestation/json/value.ts'
import { nameRelease, releaseName } from '../../../attestation/release/release-list.ts'
import { CliError, EXIT_CODES } from '../faults.ts'
import type { BundleOptions } from '../options.ts'
import {
  type Check,
  failedDetails,
  formatChecks,
  hintAtRoot,
  isoOf,
  printable,
  printableJson,
} from '../printable.ts'
import type { ListingVerifier } from '../revocation/listing-verifier.ts'
import { type ComparedExchange, compareKept, printExchange } from './kept-exchange.ts'

/**
 * Checks a bundle, and compares it with what its caller kept. Throws CliError when the chain cannot
 * be asked.
 */
export async function reportBundle(
  given: JsonObject,
  demands: {
    readonly policy: BundlePolicy
    readonly verifier: ListingVerifier
    readonly kept: KeptExchange
  },
  options: Pick<BundleOptions, 'rpc' | 'confirmations' | 'require'> & { readonly json?: boolean },
): Promise<{ readonly output: string; readonly isOk: boolean }> {
  if (options.confirmations !== undefined && options.rpc === undefined)
    throw new CliError(
      'expected --rpc with --confirmations: only a chain can tell',
      EXIT_CODES.usage,
    )
  const { policy, verifier, kept } = demands
  const record = memberOf(given, 'record')
  const bundle = isJsonObject(record) ? { ...given, record: completeRecord(record, kept) } : given
  const chain =
    options.rpc === undefined ? null : await askChain(options.rpc, blockNumberOf(bundle))
  const report: BundleReport = await verifyBundle(bundle, policy, {
    attestations: verifier,
    ...(chain === null ? {} : { chain }),
  })
  const exchange = compareKept(isJsonObject(record) ? record : {}, kept)
  const acceptance = { exchange, required: options.require }
  return {
    output: options.json ? printBundleJson(report, acceptance) : printBundleText(report, exchange),
    isOk: isAccepted(report, acceptance),
  }
}

/** Loaded where it is used: a check without a chain starts in half the time. */
async function askChain(url: string, blockNumber: number | null) {
  const { fetchChainFacts } = await import('./chain-facts.ts')
  return await fetchChainFacts(url, blockNumber)
}

/**
 * The number that the bundle claims, to be looked up; null when there is none, which its checks
 * will tell.
 */
function blockNumberOf(bundle: JsonObject): number | null {
  try {
    return parseEvidenceBundle(bundle).block?.number ?? null
  } catch {
    return null
  }
}

/** How far a report must reach, and what a caller's own request and answer were compared with. */
type Acceptance = {
  readonly exchange: ComparedExchange
  /** Anything short of it fails. */
  readonly required: 'verified' | undefined
}

/** Whether a report is good enough for an exit code of 0. */
function isAccepted({ verdict }: BundleReport, { exchange, required }: Acceptance): boolean {
  if (differencesOf(exchange).length > 0) return false
  return required === undefined ? verdict !== 'invalid' : verdict === required
}

/**
 * Gives the report of a bundle for people: each check, what was asked and said, what is open, and
 * what it comes to.
 */
function printBundleText(report: BundleReport, exchange: ComparedExchange): string {
  const checks: readonly Check[] = [...report.checks, ...exchange.checks]
  const told = report.verdict === 'invalid' ? '' : printExchange(exchange.told)
  const rest = [...describeFacts(report), conclude(report, exchange)].join('\n')
  return `evidence bundle\n${formatChecks(checks)}\n${told === '' ? '' : `${told}\n`}${rest}\n${hintAtRoot(failedDetails(checks))}`
}

/**
 * The comparisons that found a difference: then the evidence, good or not, is of something else.
 */
function differencesOf({ checks }: ComparedExchange): readonly string[] {
  return checks.filter(({ outcome }) => outcome === 'failed').map(({ name }) => name)
}

/**
 * Gives the report of a bundle as one JSON object, for programs. Bytes are hex; times Unix seconds.
 * Of evidence that is not of the request or answer that was given, the verdict is `invalid`, too.
 */
function printBundleJson(report: BundleReport, acceptance: Acceptance): string {
  const { facts, verdict, checks, open, redacted } = report
  const { exchange } = acceptance
  return `${printableJson({
    ok: isAccepted(report, acceptance),
    conclusion: conclude(report, exchange),
    bundle: {
      verdict: differencesOf(exchange).length > 0 ? 'invalid' : verdict,
      exchange: {
        checks: exchange.checks,
        ...(verdict === 'invalid' ? NOTHING_TOLD : exchange.told),
      },
      checks,
      open,
      redacted,
      facts: facts && {
        ...facts,
        release: facts.release && releaseName(facts.release),
        configuration: encodeHex(facts.configuration),
        measurements: Object.fromEntries(
          [...facts.measurements].map(([index, pcr]) => [index, encodeHex(pcr)]),
        ),
      },
    },
  })}\n`
}

/** Of evidence that does not hold, nothing is told. */
const NOTHING_TOLD = { asked: null, said: null }

function describeFacts({ facts, checks, redacted }: BundleReport): readonly string[] {
  if (facts === null) return []
  const { anchoredIn } = facts
  return [
    `completion     ${printable(facts.hash)}`,
    `leaf           ${facts.index} of the log of ${facts.notary}`,
    `provider       ${printable(facts.provider.name)} at ${printable(facts.provider.origin)}`,
    `model          ${describeModel(facts)}`,
    `outcome        ${facts.outcome}${facts.outcome === 'complete' ? '' : ': the answer was cut, and its end is not shown'}`,
    `finished       ${isoOf(facts.finishedAt * 1000, `${facts.finishedAt} s`)}, by the enclave's clock`,
    `not after      ${anchoredIn === null ? 'not shown: the block was not looked up' : describeBlock(anchoredIn)}`,
    `code           ${describeCode(facts, checks)}`,
    `configuration  ${encodeHex(facts.configuration)}`,
    ...(redacted.length > 0 ? [`left out       ${redacted.join(' and ')}`] : []),
    '',
  ]
}

function describeModel({ model }: BundleFacts): string {
  const returned =
    model.returned === null ? 'the answer names none' : `answered by ${printable(model.returned)}`
  return `${printable(model.requested)}, ${returned}`
}

function describeCode(
  { release, measurements }: BundleFacts,
  checks: BundleReport['checks'],
): string {
  if (release !== null) return printable(nameRelease(release))
  const isExpected = checks.some(
    ({ name, outcome }) => name === 'measurements' && outcome === 'passed',
  )
  if (isExpected) return 'of the expected measurements'
  return `not known to be acceptable: PCR0 ${encodeHex(measurements.get(0) ?? new Uint8Array())}`
}

/** Says what it comes to, and no more than that. */
function conclude(
  { verdict, checks, open, facts }: BundleReport,
  exchange: ComparedExchange,
): string {
  const differences = differencesOf(exchange)
  if (verdict !== 'invalid' && differences.length > 0)
    return `INVALID: failed at ${differences.join(', ')}. The bundle is evidence of something else than what you gave.`
  switch (verdict) {
    case 'invalid': {
      const failed = checks.filter(({ outcome }) => outcome === 'failed').map(({ name }) => name)
      return `INVALID: failed at ${failed.join(', ')}. The bundle shows nothing.`
    }
    case 'consistent': {
      const cut =
        open.includes('outcome') && facts !== null
          ? ` The answer was cut (${facts.outcome}): say --allow-outcome ${facts.outcome} to take it as it is.`
          : ''
      return `CONSISTENT: nothing failed, but this was not checked: ${open.join(', ')}. What those show is not shown.${cut}`
    }
    case 'verified': {
      const rest = checks.filter(({ outcome }) => outcome === 'not checked').map(({ name }) => name)
      const left = rest.length === 0 ? '' : ` Not checked, and not shown: ${rest.join(', ')}.`
      return `VERIFIED: nothing failed, and everything that had to be checked was.${left}`
    }
  }
}

function describeBlock({ timestamp, number }: NonNullable<BundleFacts['anchoredIn']>): string {
  return `${isoOf(timestamp * 1000, `${timestamp} s`)}, block ${number} of the chain`
}
